//! Any ULPDUs for a stream with regions, Sends and Reads of its own: what it lets through lies where it may, and after the
//! first breach nothing more is told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::iwarp::ddp::{Region, Regions, Rights, Stag, StreamId};
use transport::iwarp::mpa::setup::Role;
use transport::iwarp::mpa::{Deframer, Found, Framer, Markers, Parts};
use transport::iwarp::rdmap::{Event, Foreseen, ReadRequest, Settings, Stream};

const LEN: u64 = 100;
const BUFFER: u32 = 200;
const OURS: StreamId = StreamId(1);

fn rights(of: u8) -> Rights {
    Rights {
        read: of & 1 != 0,
        write: of & 2 != 0,
        sink: of & 4 != 0,
        invalidate: of & 8 != 0,
    }
}

fuzz_target!(|input: (bool, u8, Vec<&[u8]>)| {
    let (responder, given, ulpdus) = input;
    let mut regions = Regions::new(4);
    // STags 0 to 2: small numbers, so that they are found.
    for (memory, (stream, rights)) in [
        (OURS, rights(given)),
        (OURS, rights(15)),
        (StreamId(2), rights(15)),
    ]
    .into_iter()
    .enumerate()
    {
        let region = Region {
            stream,
            base: 0,
            len: LEN,
            rights,
            memory,
        };
        assert_eq!(regions.register(region, 0), Ok(Stag(memory as u32)));
    }
    let mut stream = Stream::new(&Settings {
        id: OURS,
        role: if responder {
            Role::Responder
        } else {
            Role::Initiator
        },
        ird: 2,
        ord: 2,
        rtr: None,
        receive_size: BUFFER,
        receive_buffers: 4,
    });
    if !responder {
        stream
            .read(ReadRequest {
                sink: Stag(1),
                sink_offset: 10,
                len: 20,
                source: Stag(0),
                source_offset: 0,
            })
            .unwrap();
    }
    let (mut framer, mut deframer) = (
        Framer::new(Markers::OFF, false),
        Deframer::new(Markers::OFF, false),
    );
    let mut over = false;
    for bytes in ulpdus {
        let mut out = vec![0; framer.wire_len(bytes.len())];
        if framer
            .frame(&[], &mut Parts::one(bytes), bytes.len(), &mut out)
            .is_err()
        {
            return;
        }
        let Ok(Found::Whole { ulpdu, .. }) = deframer.look(&out) else {
            panic!("not whole");
        };
        // What was foreseen is what comes.
        let foreseen = stream.foresee(bytes, bytes.len(), &regions);
        match stream.receive(ulpdu, &mut regions) {
            Ok(Event::Nothing) => {}
            Ok(event) => {
                assert!(!over, "after the end: {event:?}");
                let came = match event {
                    Event::Tagged {
                        place: Some((memory, offset)),
                        ..
                    } => Some((Foreseen::Tagged { memory, offset }, 14)),
                    Event::Send {
                        message,
                        offset,
                        payload,
                        ..
                    } if !payload.is_empty() => Some((Foreseen::Send { message, offset }, 18)),
                    _ => None,
                };
                assert_eq!(foreseen, came);
                match event {
                    Event::Tagged {
                        place: Some((memory, from)),
                        payload,
                        ..
                    } => {
                        assert!(memory < 2 && from + payload.len() as u64 <= LEN);
                    }
                    Event::Tagged {
                        place: None,
                        payload,
                        ..
                    } => assert!(payload.is_empty()),
                    Event::Send {
                        offset, payload, ..
                    } => {
                        assert!(offset as usize + payload.len() <= BUFFER as usize);
                    }
                    Event::ReadRequest => {
                        let (request, source) = stream.to_answer(0, &regions).unwrap().unwrap();
                        assert_eq!(source.is_some(), request.len > 0);
                    }
                    Event::Terminated(_) => over = true,
                    Event::Nothing => {}
                }
            }
            Err(breach) => {
                assert!(!over, "a second breach");
                over = true;
                assert!(stream.terminate(&breach).is_some());
            }
        }
    }
});
