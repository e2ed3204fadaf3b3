//! Bytes that are kept for a connection (`residual`) which the program passes to another process by a message. That process reads
//! what the kernel has, which begins behind them. Whoever is of the same family finds them there; for all others they lie in a file
//! that both know by what the kernel calls the connection (SO_COOKIE): whoever is passed it reads them there before
//! anything else.
//!
//! Called by the hooks of sendmsg and recvmsg, of each descriptor in the message.
//!
//! Rules:
//! - The file is there before the message goes, and stays until its last byte was had. All that have the connection read the same
//!   record, as they read one queue in the kernel: each byte is had once, by whoever asks first.
//! - Only this user's files are believed (`transport::sys::noted`). To another user's process, or one without the library, such
//!   bytes cannot go. Where no file can be made the connection is reset.

use super::{Socket, residual};
use crate::{signals, world};
use std::sync::atomic::{AtomicU64, Ordering};
use transport::clock;
use transport::sys::fd::inode;
use transport::sys::mem::Mapping;
use transport::sys::net;
use transport::sys::noted::{self, Name};

/// How long (s) a file may wait for whoever is passed the connection. Messages lie in a queue for less.
const STALE_S: i64 = 3600;
/// How often (s) it is looked for those.
const SWEEP_S: u64 = 600;

/// When that was done last; seconds.
static SWEPT: AtomicU64 = AtomicU64::new(0);

/// The program is about to pass the socket.
pub(crate) fn leave(s: &Socket, fd: i32) {
    let resets = || residual::is_reset_untold(s, fd);
    if residual::left(s) == 0 && !resets() || signals::is_sandboxed() {
        return;
    }
    let _w = world::lock();
    // (others who hold it by fork may be about to pass it too)
    let Ok(_rx) = s.rx.lock() else { return };
    let left = residual::left(s);
    let alone = left == 0 && resets();
    if alone {
        residual::keep_reset(s, fd); // (the kernel has told it once)
    }
    let Some(cookie) = net::cookie(fd).ok().filter(|_| left > 0 || alone) else {
        return;
    };
    let (name, len) = (Name::of(cookie), residual::size(left));
    if residual::is_left_as(s, cookie) && noted::find(name).is_ok() {
        return; // (others that it was passed to read there)
    }
    let file = noted::make(name, len).and_then(|file| Mapping::shared(&file, 0, len));
    // (those who have held it since fork go on there)
    let is_there = file.is_ok_and(|m| residual::move_to(s, fd, m, cookie));
    if !is_there {
        noted::remove(name);
        net::disconnect(fd); // a reset, never a gap
    }
    let now = clock::wall_s();
    if now.saturating_sub(SWEPT.load(Ordering::Relaxed)) > SWEEP_S {
        SWEPT.store(now, Ordering::Relaxed);
        noted::sweep(STALE_S);
    }
}

/// What was left for the connection that this number has just come to stand for. (Nothing is read of it yet.)
pub(crate) fn find(fd: i32) -> Option<Mapping> {
    if signals::is_sandboxed() {
        return None;
    }
    let is_tcp = net::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP);
    let name = Name::of(net::cookie(fd).ok().filter(|_| is_tcp)?);
    let (file, size) = noted::find(name).ok()?;
    let m = Mapping::shared(&file, 0, size).ok()?;
    // (another network namespace may have a connection of that cookie and the same folder)
    residual::is_of(&m, inode(fd).ok()?).then_some(m)
}
