"""A service that computes its answers in plain Python, on one thread, until killed (docs/profile-a-container.md)."""


def load():
    return [i * i for i in range(20000)]


def answer(rows):
    return sum(sorted(rows, reverse=True))


print("ready", flush=True)
while True:
    answer(load())
