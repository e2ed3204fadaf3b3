//! What a rule, or SHUNT_TRANSPORT where none matches, means for one connection or listener.

#![forbid(unsafe_code)]

use crate::reason::Reason;
use crate::settings::Wanted;

/// Whether iWARP may carry a connection to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iwarp {
    /// No. Nobody is asked.
    Never,
    /// If the port mapper of the server's host accepts.
    IfMapped,
    /// Yes: who wrote the rule answers for the other end.
    Always,
}

/// What may carry a connection; kernel TCP always may. Shared memory comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Shared memory, or why not.
    pub shm: Result<(), Reason>,
    pub iwarp: Iwarp,
    /// An RDMA adapter may move what iWARP carries.
    pub rides: bool,
}

impl Plan {
    /// By the rule that matches, if one does, and SHUNT_TRANSPORT.
    ///
    /// `verbs` is `iwarp` with an adapter under it, where both ends have one. `iwarp` in a rule names whom to speak iWARP with; as a setting it says nothing of any peer, so the port mapper
    /// is asked, as it is for `auto` in a rule. `auto` as a setting, which is what everybody has who sets nothing, asks
    /// nobody on the network.
    #[must_use]
    pub const fn new(rule: Option<Wanted>, setting: Wanted) -> Self {
        let iwarp = match (rule, setting) {
            (Some(Wanted::Iwarp | Wanted::Verbs), _) => Iwarp::Always,
            (Some(Wanted::Auto), _) | (None, Wanted::Iwarp | Wanted::Verbs) => Iwarp::IfMapped,
            _ => Iwarp::Never,
        };
        let shm = match rule {
            Some(wanted) => wanted.shm(Reason::Rule),
            None => setting.shm(Reason::TransportTcp),
        };
        let rides = matches!(
            (rule, setting),
            (Some(Wanted::Verbs), _) | (None, Wanted::Verbs)
        );
        Self { shm, iwarp, rides }
    }

    /// Whether nothing but kernel TCP is left.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.shm.is_err() && matches!(self.iwarp, Iwarp::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_whom_to_ask_and_settings_do_not() {
        use Iwarp::{Always, IfMapped, Never};
        let (not_there, by_rule) = (Err(Reason::NoProvider), Err(Reason::Rule));
        let table = [
            (Some(Wanted::Iwarp), Wanted::Tcp, not_there, Always, false),
            (Some(Wanted::Auto), Wanted::Tcp, Ok(()), IfMapped, false),
            (Some(Wanted::Shm), Wanted::Iwarp, Ok(()), Never, false),
            (Some(Wanted::Tcp), Wanted::Iwarp, by_rule, Never, false),
            (Some(Wanted::Verbs), Wanted::Iwarp, not_there, Always, true),
            (None, Wanted::Iwarp, not_there, IfMapped, false),
            (None, Wanted::Verbs, not_there, IfMapped, true),
            (None, Wanted::Auto, Ok(()), Never, false),
            (None, Wanted::Shm, Ok(()), Never, false),
            (None, Wanted::Tcp, Err(Reason::TransportTcp), Never, false),
        ];
        for (rule, setting, shm, iwarp, rides) in table {
            let plan = Plan::new(rule, setting);
            assert_eq!(plan, Plan { shm, iwarp, rides }, "{rule:?} {setting:?}");
            let nothing = shm.is_err() && iwarp == Never;
            assert_eq!(plan.is_plain(), nothing, "{rule:?} {setting:?}");
        }
    }
}
