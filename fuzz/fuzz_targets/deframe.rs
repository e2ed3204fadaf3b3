//! Any octets in the place of FPDUs: the same ULPDUs and the same end, in whatever pieces they come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::iwarp::mpa::{Deframer, Error, Found, Inbox, Markers};

type Ulpdus = (Vec<Vec<u8>>, Option<Error>);

fn whole(mut deframer: Deframer, mut bytes: &[u8]) -> Ulpdus {
    let mut found = Vec::new();
    loop {
        match deframer.look(bytes) {
            Ok(Found::Whole { ulpdu, wire }) => {
                found.push(ulpdu.pieces().flatten().copied().collect());
                bytes = &bytes[wire..];
            }
            Ok(Found::Partial(need)) => {
                assert!(need > bytes.len());
                return (found, None);
            }
            Err(error) => return (found, Some(error)),
        }
    }
}

fn in_pieces(deframer: Deframer, mut bytes: &[u8], size: usize) -> Ulpdus {
    let (mut inbox, mut found) = (Inbox::new(deframer, 0), Vec::new());
    loop {
        loop {
            match inbox.next() {
                Ok(Some(ulpdu)) => found.push(ulpdu.pieces().flatten().copied().collect()),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        if bytes.is_empty() {
            return (found, None);
        }
        let taken = inbox.put(&bytes[..bytes.len().min(size)]);
        assert!(taken > 0);
        bytes = &bytes[taken..];
    }
}

fuzz_target!(|input: (bool, bool, u8, &[u8])| {
    let (markers, crc, size, bytes) = input;
    let deframer = Deframer::new(Markers::wanted(markers), crc);
    let pieces = in_pieces(deframer, bytes, usize::from(size) * 8 + 1);
    assert_eq!(whole(deframer, bytes), pieces);
});
