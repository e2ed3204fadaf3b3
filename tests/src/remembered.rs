//! What kernel TCP has shown, kept for the next runner of the same tests: `SHUNT_TEST_ORACLE` names a folder, and `scripts/test`
//! runs all cases several times, each by another transport or scheme, which the kernel knows nothing of.
//!
//! Called by `matrix`. Rule: nothing differs only from what is remembered; then the kernel is asked again.

use std::path::PathBuf;

fn path(case: &str, mode: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("SHUNT_TEST_ORACLE")?;
    Some(PathBuf::from(folder).join(format!("{case}.{mode}")))
}

/// The transcript of this case in this mode on kernel TCP.
pub fn find(case: &str, mode: &str) -> Option<String> {
    std::fs::read_to_string(path(case, mode)?).ok()
}

/// Keeps it. (One that cannot be kept is found out anew.)
pub fn keep(case: &str, mode: &str, transcript: &str) {
    if let Some(path) = path(case, mode) {
        let new = path.with_extension(format!("{mode}.{}.new", std::process::id()));
        if std::fs::write(&new, transcript).is_ok() {
            std::fs::rename(&new, path).ok();
        }
    }
}
