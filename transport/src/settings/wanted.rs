//! What may carry a connection: the words of SHUNT_TRANSPORT and of the rules.

use crate::reason::Reason;

/// A transport that is asked for. Each word but `auto` means that one or kernel TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Auto,
    Shm,
    Iwarp,
    Verbs,
    Tcp,
}

impl Wanted {
    /// The words, in the order of the documentation.
    pub const WORDS: &[&str] = &["auto", "shm", "iwarp", "verbs", "tcp"];
    const ALL: [Self; 5] = [Self::Auto, Self::Shm, Self::Iwarp, Self::Verbs, Self::Tcp];

    /// What the word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.word() == word)
    }

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Iwarp => "iwarp",
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
        }
    }

    /// Whether connections may use shared memory.
    ///
    /// # Errors
    /// Why they stay on kernel TCP; `tcp` is the reason where that is what was asked for.
    pub const fn shm(self, tcp: Reason) -> Result<(), Reason> {
        match self {
            Self::Auto | Self::Shm => Ok(()),
            Self::Iwarp | Self::Verbs => Err(Reason::NoProvider),
            Self::Tcp => Err(tcp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one() {
        let words: Vec<_> = Wanted::ALL.iter().map(|w| w.word()).collect();
        assert_eq!(words, Wanted::WORDS);
        for wanted in Wanted::ALL {
            assert_eq!(Wanted::from_word(wanted.word()), Some(wanted));
        }
        assert_eq!(Wanted::from_word("TCP"), None);
    }

    #[test]
    fn what_is_not_there_says_so() {
        let why = |wanted: Wanted| wanted.shm(Reason::Rule);
        assert_eq!((why(Wanted::Auto), why(Wanted::Shm)), (Ok(()), Ok(())));
        assert_eq!(why(Wanted::Tcp), Err(Reason::Rule));
        assert_eq!(why(Wanted::Iwarp), Err(Reason::NoProvider));
        assert_eq!(why(Wanted::Verbs), Err(Reason::NoProvider));
    }
}
