//! The SDP port mapper in this process: whether a peer on another host may be asked for iWARP, and the answer to others
//! who ask about this host's listeners. Called by `connect`, `listen`, `accept` and `close`, and at the first use of a
//! connection.
//!
//! | module | what |
//! |---|---|
//! | [`asking`] | the client's side: a question at connect, its answer at the first use |
//! | [`answering`] | the server's side: listeners' marks, and the thread that answers |
//!
//! Rule: a process that may not use iWARP pays a load for it. Nothing here fails a call of the program or keeps it
//! waiting longer than its caller says.
//!
//! Two locks, both taken last of all but the heap's: one for each side.

mod answering;
mod asking;

pub(crate) use answering::{attend, closed, listening};
pub(crate) use asking::{asked, not_there, refused, verdict};
pub(crate) use transport::port_mapper::questions::Verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use transport::sys;
use transport::sys::fd::as_fd;

/// Nothing is asked or answered any more: the process limits its system calls, or its first thread has left.
static OVER: AtomicBool = AtomicBool::new(false);

fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

/// The process is about to limit its system calls, which a call of ours might offend.
pub(crate) fn end() {
    OVER.store(true, Ordering::SeqCst);
    answering::stop();
}

/// A thread of the program leaves by `pthread_exit`. If it is the first, the process lives until its last thread ends,
/// which must not be ours.
pub(crate) fn leaving() {
    // SAFETY: no pointers.
    let thread = || unsafe { transport::syscall!(gettid) }.map_or(0, as_fd);
    if !is_over() && thread() == sys::pid() {
        end();
    }
}

/// Before fork: nobody is inside while memory is copied. After the registry lock, before the heap's.
pub(crate) fn before_fork() {
    asking::hold();
    answering::hold();
}

pub(crate) fn in_parent() {
    answering::let_go();
    asking::let_go();
}

/// In a child after fork: the thread is the parent's, and so are the answers to come.
pub(crate) fn in_child() {
    answering::in_child();
    asking::in_child();
    in_parent();
}
