//! A provider during whose calls the peer acts: after the n-th look at one of its words, once, a given
//! function runs, as another process would at that moment.

use crate::direct::Direct;
use crate::doorbell::{By, Ticket};
use crate::provider::{End, Provider};
use crate::shm::segment::Segment;
use flowctl::{Back, Inbox, Note, Notes, Outbox, Piece, Terms, Untrusted, Violation, Word};
use std::cell::{Cell, RefCell};

pub(super) struct Watched<F> {
    inner: Segment,
    left: Cell<usize>,
    act: RefCell<Option<F>>,
}

impl<F: FnOnce()> Watched<F> {
    pub(super) fn new(inner: Segment, at: usize, act: F) -> Self {
        Self {
            inner,
            left: Cell::new(at),
            act: RefCell::new(Some(act)),
        }
    }

    /// Passes a look on; what it saw is from before the peer acts.
    fn after<T>(&self, seen: T) -> T {
        match self.left.get() {
            0 => {
                if let Some(act) = self.act.take() {
                    act();
                }
            }
            n => self.left.set(n - 1),
        }
        seen
    }
}

impl<F: FnOnce()> Notes for Watched<F> {
    fn note(&self, note: Note, value: u64) {
        self.inner.note(note, value);
    }

    fn noted(&self, note: Note) -> u64 {
        self.inner.noted(note)
    }
}

impl<F: FnOnce()> Outbox for Watched<F> {
    fn tell(&self, word: Word, value: u64) {
        self.inner.tell(word, value);
    }

    fn handed_back(&self, back: Back) -> Untrusted<u64> {
        self.after(self.inner.handed_back(back))
    }

    fn write_header(&self, offset: usize, len: u32) {
        Outbox::write_header(&self.inner, offset, len);
    }

    fn read_header(&self, offset: usize) -> Untrusted<u32> {
        self.inner.read_header(offset)
    }
}

impl<F: FnOnce()> Inbox for Watched<F> {
    fn told(&self, word: Word) -> Untrusted<u64> {
        self.after(self.inner.told(word))
    }

    fn hand_back(&self, back: Back, value: u64) {
        self.inner.hand_back(back, value);
        self.after(());
    }

    fn header(&self, offset: usize) -> Untrusted<u32> {
        self.after(Inbox::header(&self.inner, offset))
    }
}

impl<F: FnOnce()> Direct for Watched<F> {}

impl<F: FnOnce()> Provider for Watched<F> {
    fn region(&self) -> usize {
        Provider::region(&self.inner)
    }

    fn offer(&self, terms: &Terms) {
        self.inner.offer(terms);
    }

    fn offered(&self) -> Result<Terms, Violation> {
        self.after(self.inner.offered())
    }

    fn want(&self, receive: u64) {
        self.inner.want(receive);
    }

    fn wanted(&self) -> u64 {
        self.inner.wanted()
    }

    unsafe fn put(&self, piece: Piece, from: *const u8) {
        // SAFETY: passed on to the caller.
        unsafe { Provider::put(&self.inner, piece, from) };
    }

    fn place(&self, piece: Piece) -> (*mut u8, usize) {
        Provider::place(&self.inner, piece)
    }

    unsafe fn take(&self, piece: Piece, to: *mut u8) {
        // SAFETY: passed on to the caller.
        unsafe { Provider::take(&self.inner, piece, to) };
    }

    fn took(&self, bytes: u64) {
        Provider::took(&self.inner, bytes);
    }

    fn taken(&self) -> u64 {
        self.after(Provider::taken(&self.inner))
    }

    fn took_first(&self, bytes: u64) {
        Provider::took_first(&self.inner, bytes);
    }

    fn taken_first(&self) -> u64 {
        self.after(Provider::taken_first(&self.inner))
    }

    fn state(&self, end: End, at: u64) {
        Provider::state(&self.inner, end, at);
        self.after(());
    }

    fn stated(&self, end: End) -> Option<u64> {
        self.after(Provider::stated(&self.inner, end))
    }

    fn finish(&self, fin: u32) {
        Provider::finish(&self.inner, fin);
    }

    fn finished(&self) -> u32 {
        self.after(Provider::finished(&self.inner))
    }

    fn wish(&self, what: u32) -> bool {
        Provider::wish(&self.inner, what)
    }

    fn disarm(&self, what: u32) {
        Provider::disarm(&self.inner, what);
    }

    fn wish_by(&self, what: u32, by: By) -> bool {
        Provider::wish_by(&self.inner, what, by)
    }

    fn peer_sleeps_for(&self, what: u32) -> bool {
        self.after(Provider::peer_sleeps_for(&self.inner, what))
    }

    fn disarm_by(&self) {
        Provider::disarm_by(&self.inner);
    }

    fn armed(&self) -> u32 {
        Provider::armed(&self.inner)
    }

    fn ticket(&self) -> Option<Ticket> {
        self.after(Provider::ticket(&self.inner))
    }

    fn note_rung(&self, ticket: Ticket) {
        Provider::note_rung(&self.inner, ticket);
    }

    fn must_ring(&self, what: u32) -> bool {
        self.after(Provider::must_ring(&self.inner, what))
    }

    fn count_bell(&self) {
        Provider::count_bell(&self.inner);
        self.after(());
    }

    fn recount_bells(&self, sent: u64) {
        Provider::recount_bells(&self.inner, sent);
    }

    fn uncount_bell(&self) {
        Provider::uncount_bell(&self.inner);
    }

    fn bells(&self) -> u64 {
        self.after(Provider::bells(&self.inner))
    }

    fn stop_peer(&self, give_back: Option<u64>) {
        Provider::stop_peer(&self.inner, give_back);
        self.after(());
    }

    fn stopped(&self) -> bool {
        self.after(Provider::stopped(&self.inner))
    }

    fn enter(&self) -> bool {
        Provider::enter(&self.inner)
    }

    fn leave(&self) {
        Provider::leave(&self.inner);
    }

    fn take_give_back(&self) -> Option<u64> {
        self.after(Provider::take_give_back(&self.inner))
    }

    fn gave_back(&self) -> bool {
        self.after(Provider::gave_back(&self.inner))
    }

    fn cancel_give_back(&self) -> bool {
        self.after(Provider::cancel_give_back(&self.inner))
    }

    fn ask_times(&self) {
        Provider::ask_times(&self.inner);
    }

    fn time_put(&self) {
        Provider::time_put(&self.inner);
    }

    fn put_at(&self) -> u64 {
        self.after(Provider::put_at(&self.inner))
    }

    fn peer_is_putting(&self) -> bool {
        self.after(Provider::peer_is_putting(&self.inner))
    }
}
