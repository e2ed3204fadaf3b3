//! What this process's connections are to use: the rules of SHUNT_RULES, and where none matches
//! SHUNT_TRANSPORT. Asked at connect and listen; the file is read once, by the constructor.
//!
//! Rule: a file that cannot be read, or lines in it that are wrong, are told in one line each, and do not
//! hold; the program runs. Without SHUNT_RULES all of this is one load.

use crate::init::complain;
use crate::world;
use std::sync::OnceLock;
use transport::reason::Reason;
use transport::rules::{self, Identity, Rules};
use transport::settings::Wanted;
use transport::sys;
use transport::sys::net::{self, Endpoint};

/// Wrong lines that are told one by one.
const TOLD: usize = 8;

/// Absent where no rule is about this program.
static RULES: OnceLock<Rules> = OnceLock::new();

/// Reads the rules that are about this program, whose argument 0 is given. Once, at start.
pub(crate) fn init(file: &str, argument: &str) {
    let content = match rules::read(file.as_bytes()) {
        Ok(content) => content,
        Err(why) => {
            return complain(&format!(
                "shunt: SHUNT_RULES={file}: {why}; there are no rules"
            ));
        }
    };
    let parsed = rules::parse(&content);
    for problem in parsed.problems.iter().take(TOLD) {
        let (line, what) = (problem.line, &problem.what);
        complain(&format!(
            "shunt: {file}:{line}: {what}; the line does not hold"
        ));
    }
    let more = parsed.problems.len().saturating_sub(TOLD);
    if more > 0 {
        complain(&format!(
            "shunt: {file}: {more} more lines do not hold; see shunt rules check"
        ));
    }
    let needs_path = parsed.rules.iter().any(|r| r.what.program.is_path());
    let path = needs_path.then(sys::executable).flatten();
    let who = Identity::new(argument.as_bytes(), path.as_deref());
    let mine = Rules::of(&parsed.rules, &who);
    if !mine.is_empty() {
        let _ = RULES.set(mine);
    }
}

/// Whether there are rules about this program.
pub(crate) fn are_there() -> bool {
    RULES.get().is_some()
}

/// Whether a connect to this address may leave kernel TCP, or why not.
pub(crate) fn connect(peer: &Endpoint) -> Result<(), Reason> {
    permitted(|rules| rules.connect(peer.std()))
}

/// Whether what is accepted from this listener may leave kernel TCP, or why not.
pub(crate) fn listen(fd: i32) -> Result<(), Reason> {
    permitted(|rules| rules.listen(net::local(fd)?.std()))
}

/// What a connect to this address is to use.
pub(crate) fn wanted_to(peer: &Endpoint) -> Wanted {
    let rule = RULES.get().and_then(|rules| rules.connect(peer.std()));
    rule.unwrap_or_else(|| world::settings().transport)
}

/// What is accepted from this listener is to use.
pub(crate) fn wanted_at(fd: i32) -> Wanted {
    let rule = RULES
        .get()
        .and_then(|rules| rules.listen(net::local(fd)?.std()));
    rule.unwrap_or_else(|| world::settings().transport)
}

fn permitted(ask: impl FnOnce(&Rules) -> Option<Wanted>) -> Result<(), Reason> {
    match RULES.get().and_then(ask) {
        Some(wanted) => wanted.shm(Reason::Rule),
        None => world::settings().transport.shm(Reason::TransportTcp),
    }
}
