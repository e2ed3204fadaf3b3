//! `shunt run`: makes the environment of the program and becomes it. Signals, descriptors and the
//! working directory are left as they came, so the program starts as it would have without the command.

use crate::program::{find, obstacle};
use crate::{complain, library};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// No library; as env(1) for its own failures.
const NO_LIBRARY: i32 = 125;
/// The program is there but cannot be run.
const CANNOT_RUN: i32 = 126;
/// There is no such program.
const NOT_FOUND: i32 = 127;

type Environment = BTreeMap<OsString, OsString>;

/// Becomes the program; returns the exit status if that fails.
pub(crate) fn run(settings: &[(&'static str, OsString)], program: &[OsString]) -> i32 {
    let Some(name) = program.first() else {
        return NOT_FOUND;
    };
    let mut environment: Environment = std::env::vars_os().collect();
    // The library would warn of it, and no other program reads it.
    environment.remove(OsStr::new(library::VARIABLE));
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let stopped = find(name, path).and_then(|file| obstacle(&file));
    if let Some((file, why)) = stopped {
        complain(&format!(
            "{} {}: it runs on kernel TCP",
            printable(file.as_os_str()),
            why.text()
        ));
    } else {
        let library = match library::find() {
            Ok(library) => library,
            Err(line) => {
                complain(&line);
                return NO_LIBRARY;
            }
        };
        let before = environment
            .get(OsStr::new("LD_PRELOAD"))
            .map(OsString::as_os_str);
        let preload = library::preload(&library, before);
        environment.insert("LD_PRELOAD".into(), preload);
        environment.extend(settings.iter().map(|(k, v)| (OsString::from(k), v.clone())));
    }
    let error = execute(program, &environment);
    complain(&format!("{}: {}", printable(name), words(&error)));
    status(&error)
}

/// A name for a message of one line.
pub(crate) fn printable(name: &OsStr) -> String {
    name.to_string_lossy()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// What the error says, without the number that the standard library adds.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn status(error: &io::Error) -> i32 {
    if error.raw_os_error() == Some(libc::ENOENT) {
        NOT_FOUND
    } else {
        CANNOT_RUN
    }
}

/// execvpe(3); returns only what went wrong.
fn execute(program: &[OsString], environment: &Environment) -> io::Error {
    let pairs = environment.iter().map(|(name, value)| {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        pair
    });
    let (Some(arguments), Some(variables)) = (strings(program.iter().cloned()), strings(pairs))
    else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let (argv, envp) = (pointers(&arguments), pointers(&variables));
    if let Some(&name) = argv.first() {
        // SAFETY: C strings, and arrays of C strings that end with null, all alive during the call.
        unsafe { libc::execvpe(name, argv.as_ptr(), envp.as_ptr()) };
    }
    io::Error::last_os_error()
}

fn strings(of: impl Iterator<Item = OsString>) -> Option<Vec<CString>> {
    of.map(|s| CString::new(s.as_bytes()).ok()).collect()
}

fn pointers(of: &[CString]) -> Vec<*const c_char> {
    of.iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_statuses_of_env() {
        let of = |name: &str| status(&execute(&[name.into()], &Environment::new()));
        assert_eq!(of("/nonexistent/program"), NOT_FOUND);
        assert_eq!(of("no-such-program-anywhere"), NOT_FOUND);
        assert_eq!(of("/"), CANNOT_RUN);
        assert_eq!(of("/etc/passwd"), CANNOT_RUN);
    }

    #[test]
    fn messages_are_one_plain_line() {
        assert_eq!(
            words(&io::Error::from_raw_os_error(libc::ENOENT)),
            "No such file or directory"
        );
        assert_eq!(printable(OsStr::new("a\nb\x1b")), "a?b?");
    }

    #[test]
    fn arrays_end_with_null() {
        let two = strings(["a".into(), "b".into()].into_iter()).unwrap();
        let array = pointers(&two);
        assert_eq!((array.len(), array[2]), (3, std::ptr::null()));
    }
}
