//! Advertised buffers, as their sink and as who is asked for his own: what a SrcAvail makes this side read, which answers
//! come, and which Reads of the peer's may be answered.
//!
//! A Read is of the next bytes of the stream, so its answer is handed on as Data is: to whoever reads next, straight to the program's buffer if
//! that is there. So a call that gives up, or a program that goes elsewhere, leaves nothing behind that would have
//! to be taken back. The peer may give its buffer up at any time (`Withdraw`); Data goes on from there.

use super::{Common, In};
use crate::iwarp::ddp::{Region, Regions, Rights, Stag, StreamId, UNTAGGED};
use crate::iwarp::rdmap::{Breach, READ_REQUEST, Violation, queue};
use crate::sdp_wire;
use crate::sdp_wire::message::Advert;
use crate::wire::adverts::{self, Asked, PIECE, Reading};
use crate::wire::common;
use crate::wire::outgoing::piece;
use std::sync::atomic::Ordering;

/// Where a Read Request names the source's region, behind the header of its segment.
const SOURCE: usize = UNTAGGED + 16;

/// A buffer of the peer's that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    reading: Reading,
    /// Bytes that have come.
    came: u32,
}

impl In {
    /// The peer advertises a buffer of which `payload` bytes come with the advert. It is read, or asked for as Data.
    pub(super) fn begin_read(
        &mut self,
        common: &Common,
        advert: &Advert,
        payload: usize,
    ) -> Result<(), sdp_wire::Violation> {
        // One at a time; its payload is as the mode says.
        self.writes.mode.takes_source_advert(payload)?;
        if self.read.is_some() {
            return Err(sdp_wire::Violation::AdvertMode);
        }
        if self.writes.is_open() {
            return Ok(()); // (it has crossed an advert of this side's: that is written to)
        }
        let with = u32::try_from(payload).unwrap_or(u32::MAX);
        let len = advert.len.saturating_sub(with);
        let reads = self.stream.may_send().is_ok() && self.stream.outstanding() == 0;
        if len == 0 || !reads || self.is_shared_now() {
            common.ask(common::SEND_SM);
            return Ok(());
        }
        self.sink = adverts::next(self.sink);
        self.read = Some(Read {
            reading: Reading {
                source: advert.stag,
                address: advert.address.wrapping_add(with.into()),
                sink: adverts::sink_stag(self.sink),
                len,
                allowed: 0,
            },
            came: 0,
        });
        self.ask_more();
        Ok(())
    }

    /// Makes as many Reads outstanding as the peer answers at a time.
    fn ask_more(&mut self) {
        let Some(read) = &mut self.read else { return };
        let pieces = read.reading.len.div_ceil(PIECE);
        while read.reading.allowed < pieces
            && self
                .stream
                .read(piece(&read.reading, read.reading.allowed))
                .is_ok()
        {
            read.reading.allowed += 1;
            self.asks = true;
        }
    }

    /// An answer has come, with so many bytes.
    pub(super) fn answer_came(&mut self, payload: usize, last: bool) {
        if let Some(read) = &mut self.read {
            read.came = read
                .came
                .saturating_add(u32::try_from(payload).unwrap_or(u32::MAX));
            self.read_bytes += payload as u64;
            if let Some(takes) = &mut self.takes {
                takes.came_beside(payload);
            }
            self.ends_read = read.came >= read.reading.len;
        }
        if last {
            self.ask_more();
        }
    }

    /// The last answer is here whole.
    pub(super) fn end_read(&mut self, common: &Common) {
        if let Some(read) = self.read.take() {
            common.adverts.note_read(read.reading.len);
            self.asks = true;
            common.ask(common::RDMA_RD_COMPL);
        }
    }

    /// What is not read yet will not be.
    pub(super) fn drop_read(&mut self) {
        if self.read.take().is_some() {
            self.stream.forget_reads();
            self.asks = true;
        }
    }

    /// The sending half is told what to ask for.
    pub(super) fn tell_reading(&mut self, common: &Common) {
        if std::mem::take(&mut self.asks) {
            let reading = self.read.map(|read| read.reading);
            common.adverts.tell_reading(reading);
            if reading.is_some() {
                common.due.store(true, Ordering::Release);
            }
        }
    }

    /// Bytes that came as answers.
    #[must_use]
    pub const fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// What the segment that begins so may name: a buffer that this side has advertised, and what it reads to.
    pub(super) fn regions(&self, common: &Common, front: &[u8]) -> Regions<()> {
        let asks = common.adverts.were_made() && is_request(front);
        if !asks && self.read.is_none() && !self.writes.is_open() {
            return Regions::new(0);
        }
        let named = front.get(SOURCE..).and_then(|bytes| bytes.first_chunk());
        let named = named.map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let extent = common.adverts.extent(named).filter(|_| asks);
        let region = |len: u64, rights| Region {
            stream: StreamId(0),
            base: 0,
            len,
            rights,
            memory: (),
        };
        let mut regions = Regions::new(3);
        let read = Rights {
            read: extent.is_some(),
            ..Rights::NONE
        };
        // (of one that is no more any Read is lawful, and void)
        let len = match extent {
            Some(0) => u64::MAX,
            Some(len) => len.into(),
            None => 0,
        };
        let name = extent.map_or(0, |_| named);
        let _ = regions.register(region(len, read), name);
        let (sink, len) = self
            .read
            .map_or((0, 0), |Read { reading, .. }| (reading.sink, reading.len));
        let rights = Rights {
            sink: len > 0,
            ..Rights::NONE
        };
        let _ = regions.register(region(len.into(), rights), sink);
        let (written, len) = self.writes.region();
        let rights = Rights {
            write: len > 0,
            ..Rights::NONE
        };
        let _ = regions.register(region(len.into(), rights), written);
        regions
    }

    /// The peer has asked for a Read, which is lawful.
    pub(super) fn asked_to_answer(
        &mut self,
        common: &Common,
        regions: &Regions<()>,
    ) -> Result<(), Breach> {
        let Some((request, _)) = self.stream.to_answer(0, regions)? else {
            return Ok(());
        };
        self.stream.answered();
        let Stag(source) = request.source;
        let open = common.adverts.extent(source).is_some_and(|len| len > 0);
        // (of a shared stream no buffer is advertised any more)
        if request.len == 0 || !open || self.is_shared_now() {
            return Ok(());
        }
        let put = common.adverts.put(&Asked {
            source,
            offset: u32::try_from(request.source_offset).unwrap_or(u32::MAX),
            len: request.len,
            sink: request.sink.0,
            sink_offset: request.sink_offset,
        });
        if put {
            Ok(())
        } else {
            Err(self.stream.fail(Violation::LocalCatastrophic))
        }
    }

    /// Whether several processes hold the stream: it could not be told whose death leaves which Read.
    pub(super) const fn is_shared_now(&self) -> bool {
        self.noted.is_on()
    }
}

/// Whether a segment is a Read Request, as far as its header tells.
fn is_request(front: &[u8]) -> bool {
    let queue = front.get(6..10).and_then(|bytes| bytes.first_chunk());
    front.first().is_some_and(|control| control & 0x80 == 0)
        && queue.is_some_and(|queue| u32::from_be_bytes(*queue) == queue::READ)
        && front.len() >= UNTAGGED + READ_REQUEST
}
