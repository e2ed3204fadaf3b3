//! The dynamic symbols of libshunt.so: every call to interpose is there, and nothing else.

use shunt_tests::run::library;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn exported(file: &Path) -> BTreeSet<String> {
    let out = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(file)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "nm: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|name| name.split('@').next().unwrap().to_string())
        .collect()
}

fn libc_path() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|l| l.contains("/libc.so.6") || l.contains("/libc-2"))
        .unwrap();
    line[line.find('/').unwrap()..].to_string()
}

#[test]
fn everything_listed_is_exported() {
    let have = exported(&library());
    let list = include_str!("../../exports.txt");
    let missing: Vec<_> = list
        .lines()
        .filter(|l| !l.starts_with('#'))
        .flat_map(str::split_whitespace)
        .filter(|name| !have.contains(*name))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// A symbol that libc does not have would shadow somebody else's.
#[test]
fn nothing_but_libc_names_is_exported() {
    let libc = exported(Path::new(&libc_path()));
    let strange: Vec<_> = exported(&library())
        .into_iter()
        .filter(|n| !libc.contains(n))
        .collect();
    assert!(
        strange.is_empty(),
        "exported though libc has no such name: {strange:?}"
    );
}

/// Thread-local storage that needs __tls_get_addr is not safe in a signal handler.
#[test]
fn needs_no_library_beyond_libc() {
    let out = Command::new("readelf")
        .arg("-d")
        .arg(library())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for line in text.lines().filter(|l| l.contains("(NEEDED)")) {
        let known = [
            "libc.so",
            "libgcc_s.so",
            "ld-linux",
            "libpthread",
            "libdl",
            "libm.so",
        ];
        assert!(known.iter().any(|k| line.contains(k)), "needs {line}");
    }
}
