//! How two processes on one host find each other without a daemon.
//!
//! A listening process puts up a *board*: a UNIX socket whose abstract name is made from the inode
//! number of its TCP listener. A client learns that inode from the kernel (`sock_diag`), connects to
//! the name and leaves a *notice*: the memory file of an arena. The notice waits in the queue of
//! connections not yet accepted, so the client waits for nobody. From then on the client announces each
//! connection in the arena; the server finds it there by its 4-tuple.
//!
//! Nothing is believed that the kernel does not confirm: the owner of the board must be the owner of
//! the listener, and the owner of an announced connection must be the one who left the notice.

pub mod client;
pub mod server;
mod target;

use crate::settings::PeerUsers;
use crate::sys::{self, Result, fd::Fd, unix};

/// Boards of one listener at most: where several programs serve one that was left to them (an old version of a server and the
/// new one), each has its own.
const BOARDS: u32 = 4;

/// The name of one of the boards of a TCP listener.
fn board_name(inode: u64, nth: u32) -> String {
    match nth {
        0 => format!("shunt-1-{inode}"),
        nth => format!("shunt-1-{inode}.{nth}"),
    }
}

/// Those of all.
fn board_names(inode: u64) -> impl Iterator<Item = String> {
    (0..BOARDS).map(move |nth| board_name(inode, nth))
}

/// The inbox's name of one process among several that serve one listener.
fn inbox_name(inode: u64, member: usize, pid: i32) -> String {
    format!("shunt-1-{inode}-{member}-{pid}")
}

/// Whether the policy lets this process share memory with a process of user `uid`.
#[must_use]
pub fn permits(policy: PeerUsers, uid: u32) -> bool {
    policy == PeerUsers::Any || uid == 0 || matches!(sys::euid(), me if me == uid || me == 0)
}

/// Leaves a message with descriptors at a name, without waiting. Returns the connection, whose end
/// shows when the other side is gone.
fn leave(name: &str, fds: &[i32], trusted: impl FnOnce(u32) -> bool) -> Result<Fd> {
    let fd = unix::connect_abstract(name)?;
    if !unix::peer_user(&fd).is_some_and(trusted) {
        return Err(sys::Errno(libc::EACCES));
    }
    unix::send_fds(&fd, b"shunt", fds)?;
    Ok(fd)
}
