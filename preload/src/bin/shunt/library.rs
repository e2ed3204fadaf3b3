//! Where `libshunt.so` is, and how it gets into LD_PRELOAD: once, in front, with what stood there before
//! behind it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The library's file name.
const NAME: &str = "libshunt.so";
/// Names the library, for a copy that lies elsewhere. Only this command reads it.
pub(crate) const VARIABLE: &str = "SHUNT_LIBRARY";

/// The library, or one line that says why there is none.
pub(crate) fn find() -> Result<PathBuf, String> {
    let named = env::var_os(VARIABLE)
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    let own = env::current_exe().ok();
    let folder = own.as_deref().and_then(Path::parent);
    let found = search(named.as_deref(), folder)?;
    if found.as_os_str().as_bytes().iter().any(|&b| separates(b)) {
        // The loader knows no way to quote them.
        return Err(format!(
            "{}: LD_PRELOAD takes no file name with a space or colon",
            found.display()
        ));
    }
    Ok(found)
}

fn search(named: Option<&Path>, folder: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(file) = named {
        if !file.is_file() {
            return Err(format!(
                "{VARIABLE}={}: there is no such file",
                file.display()
            ));
        }
        return std::path::absolute(file).map_err(|e| format!("{}: {e}", file.display()));
    }
    let beside = folder.map(|folder| folder.join(NAME));
    let installed = folder
        .and_then(Path::parent)
        .map(|above| above.join("lib/shunt").join(NAME));
    let mut places = beside.into_iter().chain(installed);
    let found = places.find(|file| file.is_file());
    found.ok_or_else(|| {
        format!("{NAME} is neither beside this command nor in ../lib/shunt; set {VARIABLE}")
    })
}

const fn separates(b: u8) -> bool {
    matches!(b, b' ' | b':')
}

/// LD_PRELOAD with the library in it. Other copies of the library are left out: two of them would
/// interpose each other.
pub(crate) fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default().as_bytes();
    let entries: Vec<&OsStr> = before
        .split(|&b| separates(b))
        .filter(|e| !e.is_empty())
        .map(OsStr::from_bytes)
        .collect();
    let (copies, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| {
        let name = Path::new(e).file_name();
        name == Some(OsStr::new(NAME)) || is_same(Path::new(e), library)
    });
    if let [only] = copies.as_slice()
        && is_same(Path::new(only), library)
    {
        return OsString::from_vec(before.to_vec());
    }
    let mut out = library.as_os_str().to_owned();
    for entry in others {
        out.push(":");
        out.push(entry);
    }
    out
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |file| std::fs::canonicalize(file).ok();
    one == other || real(one).is_some_and(|file| Some(file) == real(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preloaded(before: Option<&str>) -> String {
        preload(Path::new("/a/libshunt.so"), before.map(OsStr::new))
            .into_string()
            .unwrap()
    }

    #[test]
    fn the_library_comes_first_and_once() {
        assert_eq!(preloaded(None), "/a/libshunt.so");
        assert_eq!(preloaded(Some("")), "/a/libshunt.so");
        assert_eq!(preloaded(Some("/x.so /y.so")), "/a/libshunt.so:/x.so:/y.so");
    }

    #[test]
    fn one_that_is_there_stays_where_it_is() {
        assert_eq!(
            preloaded(Some("/x.so:/a/libshunt.so")),
            "/x.so:/a/libshunt.so"
        );
    }

    #[test]
    fn other_copies_go() {
        assert_eq!(
            preloaded(Some("/b/libshunt.so:/x.so")),
            "/a/libshunt.so:/x.so"
        );
        assert_eq!(
            preloaded(Some("/a/libshunt.so:/b/libshunt.so")),
            "/a/libshunt.so"
        );
    }

    #[test]
    fn a_named_library_must_be_there() {
        let line = search(Some(Path::new("/nonexistent/x.so")), None).unwrap_err();
        assert_eq!(
            line,
            "SHUNT_LIBRARY=/nonexistent/x.so: there is no such file"
        );
        assert!(search(Some(Path::new("/proc/self/exe")), None).is_ok());
        assert!(
            search(None, Some(Path::new("/nonexistent")))
                .unwrap_err()
                .contains(NAME)
        );
    }
}
