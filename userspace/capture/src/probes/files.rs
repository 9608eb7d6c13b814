//! Files: which files have probes.
//!
//! Owns: deciding whether a file is among them, by whatever path it is reached, and which plans lead to it. Because:
//! the kernel puts probes on a file, not on a path: a file probed twice counts each call twice, and one that loses
//! its probes while another path leads to it counts none. Does not: attach.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use deepctx_uprobes::{PlanId, PlannedFile};

use crate::overlayfs::BackingFile;

/// A file with probes. Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(pub(crate) u64);

#[derive(Debug)]
struct ProbedFile {
    /// Kept open, so that no other file gets its inode number.
    file: File,
    /// Device and inode.
    key: (u64, u64),
    backing: BackingFile,
    /// Plans of this file; the first is the one whose probes it has.
    plans: Vec<PlanId>,
}

/// The files that have their probes.
#[derive(Default)]
pub(super) struct ProbedFiles {
    files: BTreeMap<FileId, ProbedFile>,
    ids: u64,
}

impl ProbedFiles {
    /// Adds a file, and returns its number and a path that stays valid whatever becomes of its own; `None` if it has
    /// its probes already.
    ///
    /// # Errors
    /// It cannot be opened, or is not the file that was searched: a probe of one file, put into another, would break
    /// an instruction there.
    pub(super) fn add(&mut self, planned: &PlannedFile) -> Result<Option<(FileId, PathBuf)>, String> {
        let PlannedFile { id: plan, library, .. } = planned;
        let file = library.open().map_err(|reason| reason.sentence().to_owned())?;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let backing = BackingFile::of(&file, &metadata);
        let key = (metadata.dev(), metadata.ino());
        if searched(planned) != Some(key) {
            return Err("its process has mapped another file there since it was searched".to_owned());
        }
        let is_same = |known: &&mut ProbedFile| known.key == key || backing.is_shared_with(&known.backing);
        if let Some(known) = self.files.values_mut().find(is_same) {
            let path = library.mapping.path().display();
            tracing::debug!(%path, "its probes are there: another path leads to the same file");
            known.plans.push(*plan);
            return Ok(None);
        }
        self.ids += 1;
        let (id, path) = (FileId(self.ids), path_of(&file));
        self.files.insert(id, ProbedFile { file, key, backing, plans: vec![*plan] });
        Ok(Some((id, path)))
    }

    /// The file with the probes of this plan, and a path that stays valid; `None` if another one was searched.
    pub(super) fn of_plan(&self, planned: &PlannedFile) -> Option<(FileId, PathBuf)> {
        let (id, probed) = self.files.iter().find(|(_, probed)| probed.plans.first() == Some(&planned.id))?;
        (searched(planned) == Some(probed.key)).then(|| (*id, path_of(&probed.file)))
    }

    /// The plan whose probes a file has.
    pub(super) fn plan_of(&self, file: FileId) -> Option<PlanId> {
        self.files.get(&file)?.plans.first().copied()
    }

    /// The file of a plan.
    pub(super) fn reached_by(&self, plan: PlanId) -> Option<FileId> {
        self.files.iter().find(|(_, probed)| probed.plans.contains(&plan)).map(|(id, _)| *id)
    }

    /// The plan is unused: returns its file if no other plan refers to it; the file is closed.
    pub(super) fn remove_plan(&mut self, plan: PlanId) -> Option<FileId> {
        let (id, probed) = self.files.iter_mut().find(|(_, probed)| probed.plans.contains(&plan))?;
        probed.plans.retain(|other| *other != plan);
        let id = *id;
        if !probed.plans.is_empty() {
            return None;
        }
        self.files.remove(&id);
        Some(id)
    }
}

/// Device and inode of the file that was searched.
fn searched(planned: &PlannedFile) -> Option<(u64, u64)> {
    planned.version.map(|version| (version.device, version.inode))
}

/// A path of an open file that stays valid whatever becomes of its own.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use deepctx_uprobes::{Kernel, Layers, Library, Planner, UserRow};

    use super::*;

    /// Plans of a file by its own path and by that of a hard link, and of another file.
    fn plans(folder: &std::path::Path) -> Vec<PlannedFile> {
        let own = std::env::current_exe().unwrap();
        let paths = ["one", "two", "other"].map(|name| folder.join(name));
        std::fs::copy(&own, &paths[0]).unwrap();
        std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        std::fs::copy(&own, &paths[2]).unwrap();
        let rows = paths.iter().map(|path| format!("[[probe]]\nlibrary = {path:?}\nsymbol = \"main\"\n"));
        let rows: Vec<UserRow> = deepctx_uprobes::catalogue::user::parse(&rows.collect::<String>()).unwrap();
        let mut planner = Planner::new(rows, Layers::Lowest, Kernel { version: (6, 12) });
        planner.add_libraries(paths.iter().map(|path| Library::of_file(path).unwrap()).collect());
        planner.planned().to_vec()
    }

    #[test]
    fn a_file_that_was_not_searched_gets_no_probes() {
        let folder = tempfile::tempdir().unwrap();
        let plans = plans(folder.path());
        let [one, _, other] = &plans[..] else { panic!("{plans:?}") };
        let mut files = ProbedFiles::default();
        for version in [other.version, None] {
            let swapped = PlannedFile { version, ..one.clone() };
            assert!(files.add(&swapped).unwrap_err().contains("another file"));
        }
        assert!(files.add(one).unwrap().is_some());
        assert!(files.of_plan(one).is_some());
        assert_eq!(files.of_plan(&PlannedFile { version: other.version, ..one.clone() }), None);
    }

    #[test]
    fn probes_stay_while_any_path_leads_to_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let plans = plans(folder.path());
        let [one, two, other] = &plans[..] else { panic!("{plans:?}") };
        let mut files = ProbedFiles::default();
        let (id, path) = files.add(one).unwrap().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), one.library.mapping.inode);
        assert_eq!(files.add(two).unwrap(), None);
        let (second, _) = files.add(other).unwrap().unwrap();
        assert_eq!(files.of_plan(two), None, "its probes are of the first plan");
        assert_eq!(files.plan_of(id), Some(one.id));
        assert_eq!(files.remove_plan(one.id), None, "another path leads to it");
        assert_eq!(files.of_plan(two), Some((id, path)));
        assert_eq!(files.remove_plan(two.id), Some(id));
        assert_eq!(files.remove_plan(two.id), None);
        assert_eq!(files.plan_of(id), None);
        assert_eq!(files.remove_plan(other.id), Some(second));
    }
}
