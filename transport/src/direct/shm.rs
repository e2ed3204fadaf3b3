//! The trait as shared memory fills it: each word of it is a call of the file that owns the matter. What is kept
//! here is the choice of the way, and how often a reader that does not come is waited for.

use super::choice::{Choice, Way};
use super::cost;
use super::far::{Far, Look};
use super::policy::{self, Mode};
use super::{Direct, Lane, Patience, Pending, source};
use crate::clock;
use crate::doorbell;
use crate::provider::Provider;
use crate::reason::Reason;
use crate::shm::segment::Segment;
use crate::sync::Ordering;
use crate::sys::time;

impl Direct for Segment {
    fn reaches(&self) -> Result<(), Reason> {
        self.peer_process().map(|_| ())
    }

    fn refusal(&self) -> Reason {
        self.known_refusal()
    }

    fn moved(&self) -> u64 {
        let home = &self.mine().home;
        home.sent.load(Ordering::Relaxed) + home.received.load(Ordering::Relaxed)
    }

    fn begin(&self, len: usize) {
        if policy::mode() == Mode::Auto {
            let home = &self.mine().home;
            let mut choice = home.choice();
            choice.begin(clock::ticks(), len, time::switches, cost::thrifty);
            home.choose(&choice);
        }
    }

    fn way(&self) -> Way {
        match policy::mode() {
            Mode::Auto => self.mine().home.way(),
            _ => Way::Direct,
        }
    }

    fn is_crowded(&self) -> bool {
        policy::mode() == Mode::Auto && self.mine().home.choice().is_crowded()
    }

    fn wait_in_vain(&self, waited: u64) {
        let home = &self.mine().home;
        let mut choice = home.choice();
        policy::note_vain(waited);
        choice.in_vain();
        home.choose(&choice);
    }

    fn longest_wait(&self, comes: bool) -> u64 {
        let choice = self.mine().home.choice();
        policy::longest_wait(&choice, comes)
    }

    fn moved_on(&self, bytes: usize) {
        let word = &self.mine().home.choice.bytes;
        let mut choice = Choice {
            bytes: word.load(Ordering::Relaxed),
            ..Choice::new()
        };
        choice.moved(bytes as u64);
        word.store(choice.bytes, Ordering::Relaxed);
    }

    fn foretell(&self, large: bool) {
        self.foretell_large(large);
    }

    fn awaited(&self, at: u64) -> u64 {
        self.room_awaited(at)
    }

    fn peer_sleeps(&self) -> bool {
        Provider::peer_sleeps_for(self, doorbell::DATA)
    }

    fn is_prompt(&self, wait: Patience) -> bool {
        let pass = &self.passing(wait).left;
        let left = pass.load(Ordering::Relaxed);
        pass.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    fn note_prompt(&self, wait: Patience, came: bool) {
        let pass = self.passing(wait);
        let last = pass.last.load(Ordering::Relaxed);
        let next = if came {
            0
        } else {
            (2 * last + 1).min(policy::LONGEST_PASS)
        };
        if next != last {
            pass.last.store(next, Ordering::Relaxed);
            pass.left.store(next, Ordering::Relaxed);
        }
    }

    unsafe fn deliver(&self, at: u64, from: *const u8, len: usize) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { self.deliver_to_posted(at, from, len) }
    }

    fn advertise(&self, at: u64, from: *const u8, len: usize) -> bool {
        self.advertise_buffer(at, from, len)
    }

    fn is_taken(&self) -> bool {
        self.advert_is_over()
    }

    unsafe fn help(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.help_reader() }
    }

    fn hide(&self) {
        self.hide_buffer();
    }

    fn conclude(&self) -> usize {
        self.conclude_open()
    }

    #[inline]
    fn has_adverts(&self) -> bool {
        self.looks_large()
    }

    fn adverts(&self) -> u64 {
        self.peer().tx.offer.load(Ordering::Acquire)
    }

    fn pending(&self) -> Option<Pending> {
        self.pending_advert()
    }

    fn post(&self, read: u64, to: *mut u8, len: usize) {
        self.post_buffer(read, to, len);
    }

    fn is_posted(&self) -> bool {
        self.mine().sink.posted.load(Ordering::Relaxed) & source::POSTED != 0
    }

    fn withdraw(&self) {
        self.withdraw_buffer();
    }

    fn settle_taken_back(&self, accepted: u64) {
        self.shorten_taken_back(accepted);
    }

    fn taken_back(&self) -> Option<Pending> {
        self.last_taken_back()
    }

    fn forget_taken_back(&self) {
        let last = source::number(self.adverts());
        self.mine().sink.forgotten.store(last, Ordering::Relaxed);
    }

    fn ask_small(&self) {
        self.ask_for_the_rest();
    }

    fn pass(&self) {
        self.pass_adverts();
    }

    fn bury_reader(&self) {
        self.settle_pulls();
    }

    fn bury_reader_of_lane(&self, far: &Far) -> bool {
        self.settle_lane(far)
    }

    fn offer_lane(&self, fd: i32, pipe: u64) {
        self.offer_reading_end(fd, pipe);
    }

    fn lane(&self) -> Lane {
        self.own_lane()
    }

    fn has_room(&self) -> bool {
        self.can_open()
    }

    fn hold(&self, at: u64, len: usize) {
        self.advertise_held(at, len);
    }

    fn held(&self) -> u64 {
        self.held_unread()
    }

    #[inline]
    fn fetch(&self, far: &Far) {
        self.fetch_lane(far);
    }

    fn fetched(&self) -> bool {
        self.mine().sink.fetched.load(Ordering::Relaxed) != 0
    }

    unsafe fn receive_held(
        &self,
        at: u64,
        to: Option<*mut u8>,
        len: usize,
        far: &Far,
    ) -> Option<usize> {
        // SAFETY: passed on to the caller.
        unsafe { self.receive_from_lane(at, to, len, far) }
    }

    fn look_held(&self, far: &Far, len: usize) -> Option<Look> {
        self.look_into_lane(far, len)
    }

    fn ahead(&self) -> impl Iterator<Item = Pending> {
        Self::ahead(self)
    }

    unsafe fn receive(&self, at: u64, to: Option<*mut u8>, len: usize) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { self.receive_advert(at, to, len) }
    }
}
