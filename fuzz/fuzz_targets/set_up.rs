//! Frames of the iWARP set-up from anybody: refused, waited for, or read as they would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::iwarp::mpa::setup::{Heard, Initiator, Reads, Responder, Wants};
use transport::iwarp::mpa::startup::{LARGEST, Read};
use transport::iwarp::mpa::{Frame, Kind, RtrSet};

fuzz_target!(|bytes: &[u8]| {
    let wants = Wants {
        markers: false,
        crc: true,
        reads: Some(Reads {
            ird: 8,
            ord: 8,
            least_ord: 1,
            rtr: RtrSet {
                fpdu: true,
                write: true,
                read: true,
            },
        }),
    };
    let mut out = [0; LARGEST];
    for kind in [Kind::Request, Kind::Reply] {
        match Frame::read(kind, bytes) {
            Ok(Read::Whole(frame, used)) => {
                assert!(used <= bytes.len() && frame.len() <= used);
                let len = frame.write(&mut out).unwrap();
                assert_eq!(Frame::read(kind, &out[..len]), Ok(Read::Whole(frame, len)));
            }
            Ok(Read::Partial(need)) => assert!(need > bytes.len() && need <= LARGEST),
            Err(_) => {}
        }
    }
    let (initiator, _) = Initiator::ask(wants, b"", &mut out).unwrap();
    let _ = initiator.hear(bytes);
    if let Ok(Heard::Whole { what, .. }) = Responder::hear(bytes) {
        let _ = what.accept(wants, b"private", &mut out);
        let _ = what.reject(wants, b"private", &mut out);
    }
});
