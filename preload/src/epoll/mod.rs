//! epoll over attached sockets. A set that has none is the kernel's alone; a set that has some keeps
//! the kernel's set underneath for everything else and for sleeping.

mod around;
mod board;
pub(crate) mod callers;
pub(crate) mod ctl;
pub(crate) mod entry;
mod hot;
mod look;
mod out;
pub(crate) mod registered;
pub(crate) mod set;
mod shared;
pub(crate) mod ticket;
mod trial;
pub(crate) mod wait;
mod waking;
