//! What this process's connections are to use: the rules of SHUNT_RULES, and where none matches
//! SHUNT_TRANSPORT. Asked at connect and listen; the file is read once, by the constructor.
//!
//! Rule: a file that cannot be read, or lines in it that are wrong, are told in one line each, and do not
//! hold; the program runs. Without SHUNT_RULES all of this is one load.

use crate::init::complain;
use crate::world;
use std::sync::OnceLock;
use transport::reason::Reason;
use transport::rules::{self, Identity, Plan, Rules};
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

/// Whether what is accepted from this listener may use shared memory, or why not.
pub(crate) fn listen(fd: i32) -> Result<(), Reason> {
    listen_wanted(fd).shm
}

/// What a connect to this address is to use.
pub(crate) fn connect_wanted(peer: &Endpoint) -> Plan {
    plan(|rules| rules.connect(peer.std()))
}

/// What connections that are accepted from this listener are to use. ([`Iwarp::IfMapped`] is no less than
/// [`Iwarp::Always`] here: it is the client that asks.)
///
/// [`Iwarp::IfMapped`]: rules::Iwarp::IfMapped
/// [`Iwarp::Always`]: rules::Iwarp::Always
pub(crate) fn listen_wanted(fd: i32) -> Plan {
    plan(|rules| rules.listen(net::local(fd)?.std()))
}

fn plan(ask: impl FnOnce(&Rules) -> Option<Wanted>) -> Plan {
    Plan::new(RULES.get().and_then(ask), world::settings().transport)
}
