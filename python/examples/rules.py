"""A rule for `python3 -m deepctx.rules examples/rules.py PROFILE`: a loader that takes too much."""

from collections.abc import Iterator

from deepctx import Figure, Finding, Gain, Profile, Rule


class Loading(Rule):
    name = "loading-share"
    title = "loading takes more than a tenth"

    def check(self, profile: Profile) -> Iterator[Finding]:
        total = profile.root.inclusive()
        loading = sum(node.inclusive() for node in profile.filter(lambda node: node.name == "load"))
        if loading * 10 > total:
            percent = 100 * loading / total
            yield Finding(
                f"loading takes {percent:.0f} % of {profile.metric}",
                share_percent=percent,
                gain=Gain("the program must still load", percent),
                evidence=[Figure("loading", percent, "percent")],
                advice="load the next batch while the device works on this one",
                datapoints=total,
                violations=loading,
            )
