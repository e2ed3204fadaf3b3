//! Starting programs and ending them: what `compare`, `cost` and `figures` share. This file owns the folder for what they leave
//! and the way to the library; `child` is one process, `port` finds a port and waits for its server.

mod child;
mod port;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub(crate) use child::{Child, Ended, Program, Start, find};
pub(crate) use port::{free_port, wait_listening};

/// A folder of our own under the system's folder for temporary files; removed with all that is in it.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("shunt-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The full path of the library under test, by default the one that was built with this program: other programs are
/// started in other folders.
pub(crate) fn library(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let built = std::env::current_exe()?.with_file_name("libshunt.so");
    let path = named.unwrap_or(&built);
    path.canonicalize().with_context(|| {
        format!(
            "{}: build the library (cargo build --release) or name it with --lib",
            path.display()
        )
    })
}
