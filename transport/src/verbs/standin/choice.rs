//! Whether the environment wants the stand-in for an adapter (`SHUNT_STANDIN_ADAPTER`), and what shortcomings it is to have, for
//! tests of what is above: real adapters have them when nobody expects it.
//!
//! | value | what |
//! |---|---|
//! | `1` | one that does all it has to |
//! | `1/4` | has room for four queue pairs a process |
//! | `1!50` | each queue pair gives up after some work requests, 50 on average, as one does whose peer's machine stands still |
//! | `1?3000` | each takes some time to connect, 3000 ms at most |
//! | `1@` | each is at a port of InfiniBand ([`super::port`]) |
//! | `1^` | one that reaches the program's memory on demand, and keeps registrations of it ([`super::guests`]) |

use crate::clock;
use std::sync::OnceLock;

/// See the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// For how many queue pairs of a process there is room.
    pub(super) room: usize,
    lasts: Option<u32>,
    slow_ms: u32,
    pub(super) infiniband: bool,
    pub(super) on_demand: bool,
}

impl Choice {
    const WHOLE: Self = Self {
        room: usize::MAX,
        lasts: None,
        slow_ms: 0,
        infiniband: false,
        on_demand: false,
    };

    fn from_value(value: &str) -> Option<Self> {
        let mut rest = value.strip_prefix('1')?.chars();
        let kind = rest.next();
        let number = || rest.as_str().parse::<u32>().ok();
        let whole = Self::WHOLE;
        match kind {
            None => Some(whole),
            Some('/') => Some(Self {
                room: number()? as usize,
                ..whole
            }),
            Some('!') => Some(Self {
                lasts: Some(number()?),
                ..whole
            }),
            Some('?') => Some(Self {
                slow_ms: number()?,
                ..whole
            }),
            Some('@') if rest.as_str().is_empty() => Some(Self {
                infiniband: true,
                ..whole
            }),
            Some('^') if rest.as_str().is_empty() => Some(Self {
                on_demand: true,
                ..whole
            }),
            Some(_) => None,
        }
    }
}

/// What the environment wants, if it wants one. Read once.
pub(super) fn get() -> Option<Choice> {
    static CHOICE: OnceLock<Option<Choice>> = OnceLock::new();
    *CHOICE.get_or_init(|| Choice::from_value(&std::env::var("SHUNT_STANDIN_ADAPTER").ok()?))
}

/// The same; in unit tests, which ask nobody, one without shortcomings.
fn own() -> Choice {
    get().unwrap_or(Choice::WHOLE)
}

/// Whether it reaches the program's memory on demand.
pub(super) fn is_on_demand() -> bool {
    own().on_demand
}

/// Up to twice this.
fn about(n: u32) -> u32 {
    let most = n.saturating_mul(2).saturating_add(1);
    crate::verbs::random().unwrap_or(0) % most
}

/// How many work requests more a queue pair carries out before it gives up; none where it never does.
#[derive(Debug, Default)]
pub(super) struct Patience(Option<u32>);

impl Patience {
    pub(super) fn new() -> Self {
        Self(own().lasts.map(about))
    }

    /// Whether it gives up with so many further ones.
    pub(super) fn ends_with(&mut self, n: usize) -> bool {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let Some(left) = &mut self.0 else {
            return false;
        };
        let ends = *left < n;
        *left = left.saturating_sub(n);
        ends
    }
}

/// When (ticks) a queue pair that connects now is connected.
pub(super) fn connected_at() -> u64 {
    let us = 1000 * u64::from(about(own().slow_ms / 2));
    clock::ticks().saturating_add(clock::us(us))
}

#[cfg(test)]
mod tests {
    use super::Choice;

    #[test]
    fn values_and_what_is_none() {
        let of = |value| {
            Choice::from_value(value).map(|choice| (choice.room, choice.lasts, choice.slow_ms))
        };
        let at_port = |value| Choice::from_value(value).map(|choice| choice.infiniband);
        assert_eq!(at_port("1@"), Some(true));
        assert_eq!(at_port("1/4"), Some(false));
        let keeps = |value| Choice::from_value(value).map(|choice| choice.on_demand);
        assert_eq!(keeps("1^"), Some(true));
        assert_eq!(keeps("1"), Some(false));
        assert_eq!(of("1"), Some((usize::MAX, None, 0)));
        assert_eq!(of("1/4"), Some((4, None, 0)));
        assert_eq!(of("1!50"), Some((usize::MAX, Some(50), 0)));
        assert_eq!(of("1?3000"), Some((usize::MAX, None, 3000)));
        for none in [
            "", "0", "2", "11", "1/", "1/x", "1!", "1?-1", "1é", " 1", "1@x", "1^x",
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
