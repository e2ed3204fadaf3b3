//! What an end does with octets that come: one read from the connection, and all that follows from it.

use std::io::{ErrorKind, Read};

use transport::iwarp::rdmap::{Breach, Event, Foreseen, TaggedKind};

use super::{End, Ending, Received};

/// Octets that an end reads at a time which puts payloads straight to their place.
const PIECE: usize = 3000;

impl End {
    /// One read from the connection, and all that follows from it.
    pub(super) fn progress(&mut self) {
        let n = if self.inbox.left() > 0 {
            self.read_in_place()
        } else {
            let space = self.inbox.space();
            // A little only, so that there is a rest that can go elsewhere.
            let most = if self.direct { PIECE } else { space.len() };
            let most = most.min(space.len());
            let n = self.tcp.read(&mut space[..most]);
            n.inspect(|n| self.inbox.filled(*n))
        };
        match n {
            Ok(0) => {
                let held = self.inbox.held() + self.inbox.left();
                assert_eq!(held, 0, "the stream was cut off within a frame");
                self.ending.get_or_insert(Ending::Closed);
                return;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.ending.get_or_insert(Ending::Reset);
                return;
            }
            Err(error) => panic!("nothing came: {error}"),
        }
        while self.ending.is_none() && self.step() {}
        if self.direct && self.ending.is_none() {
            self.go_round();
        }
    }

    fn read_in_place(&mut self) -> std::io::Result<usize> {
        let mut piece = vec![0; self.inbox.left()];
        let n = self.tcp.read(&mut piece)?;
        self.put_in_place(&piece[..n]);
        self.inbox.placed(&piece[..n]);
        if self.inbox.left() == 0 {
            // The end of the frame comes through the inbox.
            let n = self.tcp.read(self.inbox.space())?;
            self.inbox.filled(n);
        }
        Ok(n)
    }

    /// Lets the rest of a payload go round the inbox.
    fn go_round(&mut self) {
        let Some((front, len)) = self.inbox.partial() else {
            return;
        };
        let Some((foreseen, header)) = self.stream.foresee(front, len, &self.regions) else {
            return;
        };
        let arrived = front[header..].to_vec();
        self.target = Some((foreseen, 0));
        self.put_in_place(&arrived);
        let rest = len - header - arrived.len();
        assert_eq!(self.inbox.bypass(header), Some(rest));
        self.bypassed += 1;
    }

    fn put_in_place(&mut self, bytes: &[u8]) {
        let (foreseen, there) = self.target.as_mut().unwrap();
        match foreseen {
            Foreseen::Tagged { memory, offset } => {
                let at = usize::try_from(*offset).unwrap() + *there;
                self.memory[*memory][at..at + bytes.len()].copy_from_slice(bytes);
            }
            Foreseen::Send { offset, .. } => {
                assert_eq!(self.part.len(), *offset as usize + *there);
                self.part.extend(bytes);
            }
        }
        *there += bytes.len();
    }

    /// One received ULPDU; false if there is none.
    fn step(&mut self) -> bool {
        let event = match self.inbox.next() {
            Ok(None) => return false,
            Ok(Some(ulpdu)) => self.stream.receive(ulpdu, &mut self.regions),
            Err(error) => Err(self.stream.fail(error.into())),
        };
        match event {
            Err(breach) => {
                self.fails(&breach);
                return false;
            }
            Ok(Event::Nothing) => {}
            Ok(Event::ReadRequest) => self.answer(),
            Ok(Event::Tagged {
                place,
                payload,
                kind,
                last,
            }) => {
                if payload.is_in_place() {
                    let place = place.map(|(memory, offset)| Foreseen::Tagged { memory, offset });
                    let target = self.target.take();
                    assert_eq!(target, place.map(|place| (place, payload.len())));
                } else if let Some((memory, from)) = place {
                    let from = usize::try_from(from).unwrap();
                    let room = &mut self.memory[memory][from..][..payload.len()];
                    assert_eq!(payload.copy_to(room), payload.len());
                }
                if let (TaggedKind::ReadResponse(_), true) = (kind, last) {
                    let of_rtr = std::mem::take(&mut self.rtr_read);
                    self.reads_done += usize::from(!of_rtr);
                }
            }
            Ok(Event::Send {
                message,
                offset,
                payload,
                solicited,
                invalidated,
                last,
            }) => {
                if payload.is_in_place() {
                    let foreseen = Foreseen::Send { message, offset };
                    assert_eq!(self.target.take(), Some((foreseen, payload.len())));
                } else {
                    assert_eq!(self.part.len(), offset as usize);
                    self.part.extend(payload.pieces().flatten());
                }
                if last {
                    self.sends.push_back(Received {
                        bytes: std::mem::take(&mut self.part),
                        solicited,
                        invalidated: invalidated.map(|(stag, _)| stag),
                    });
                }
            }
            Ok(Event::Terminated(said)) => self.ending = Some(Ending::Terminated(said)),
        }
        true
    }

    fn fails(&mut self, breach: &Breach) {
        if let Some(segment) = self.stream.terminate(breach) {
            self.put(segment.head.bytes(), &[]);
        }
        self.ending = Some(Ending::Broken(breach.violation));
    }

    fn answer(&mut self) {
        while let Ok(message) = self.stream.answer() {
            let (_, source) = self.stream.to_answer(0, &self.regions).unwrap().unwrap();
            let bytes = source.map_or(Vec::new(), |(memory, from)| {
                let from = usize::try_from(from).unwrap();
                self.memory[memory][from..][..message.len() as usize].to_vec()
            });
            self.put_all(message, &bytes);
            self.stream.answered();
        }
    }
}
