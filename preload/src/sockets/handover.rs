//! Bytes that are kept for a connection (`residual`), handed to the program that this process starts or becomes.
//! They lie in a memory file, which the new program inherits; a variable in its environment says in
//! which descriptor and where, and the library there takes it away before the program looks. Or they lie in a file that others
//! find (`forwarded`), and the variable says what that is called. The memory
//! is shared, so whoever goes on in the old program and the new one take each byte once.
//!
//! The variable also says which connections may be asked for software iWARP yet: the request is not for the new program to see.
//!
//! Called by the hooks of exec and by the constructor. Rule: what is found is believed only if the file
//! cannot shrink and the record names the very connection that a descriptor stands for.

use super::{Phase, Socket, forwarded, options, residual, wired};
use crate::{table, world};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use transport::sys::fd::{Fd, inode};
use transport::sys::listing::each_open;
use transport::sys::mem::{Mapping, rlimit, sealed_size};
use transport::sys::net;
use transport::syscall;

/// The variable: `DESCRIPTOR:OFFSET:LENGTH,…`, or `@COOKIE` for what others find; `?COOKIE` for what may be asked yet, `!COOKIE` if others
/// hold that too.
pub(crate) const VARIABLE: &str = "SHUNT_UNREAD";

/// Connections announced at most: the kernel limits how long one variable may be.
const MOST: usize = 2000;

/// Descriptors looked at by a new program: beyond these nothing is found again.
const NUMBERS: u64 = 1 << 16;

const PAGE: usize = 4096;

/// A part of a file that another program has left, mapped here.
#[derive(Debug)]
struct Part {
    at: usize,
    len: usize,
    file: i32,
    offset: usize,
}

static ADOPTED: OnceLock<Vec<Part>> = OnceLock::new();

/// Announcements that stand in this process: its files are inheritable for as long.
static STANDING: AtomicU32 = AtomicU32::new(0);

/// The file and place where a record lies.
fn place(at: *const u8) -> Option<(i32, usize)> {
    super::family::place(at).or_else(|| {
        let parts = ADOPTED.get()?;
        let part = parts
            .iter()
            .find(|p| (p.at..p.at + p.len).contains(&at.addr()))?;
        Some((part.file, part.offset + (at.addr() - part.at)))
    })
}

/// Whether a new program inherits this descriptor.
pub(crate) fn stays(fd: i32) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { syscall!(fcntl, fd, libc::F_GETFD) };
    flags.is_ok_and(|f| f & libc::FD_CLOEXEC.cast_unsigned() as usize == 0)
}

fn set_inherited(file: i32, inherited: bool) {
    let flags = if inherited { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: no pointers.
    let _ = unsafe { syscall!(fcntl, file, libc::F_SETFD, flags) };
}

/// What a new program is told while this lives, and only then: the files are inheritable.
#[derive(Debug)]
pub(crate) struct Announcement {
    text: CString,
    files: Vec<i32>,
    /// Made by a child that borrows this memory, for descriptors of its own.
    by_child: bool,
}

impl Announcement {
    /// The variable with its value.
    pub(crate) fn text(&self) -> &CStr {
        &self.text
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let _w = world::lock();
        if self.by_child || STANDING.fetch_sub(1, Ordering::Relaxed) == 1 {
            for &file in &self.files {
                set_inherited(file, false);
            }
        }
    }
}

/// Announces whatever is kept in this process to a program that is about to be started, or that it `becomes`. `None` if nothing
/// is, which is nearly always.
pub(crate) fn announce(becomes: bool) -> Option<Announcement> {
    let mut is_any_unasked = false;
    table::each(0, u32::MAX, |_, entry| {
        if let table::Entry::Socket(s) = entry {
            wired::await_others(s);
            is_any_unasked |= wired::is_unasked(s).is_some();
        }
    });
    keep_resets();
    if !residual::is_any() && !is_any_unasked {
        return None;
    }
    let _w = world::lock();
    let unasked = if is_any_unasked {
        unasked()
    } else {
        Vec::new()
    };
    let (mut all, mut named) = (Vec::<(i32, usize, usize)>::new(), Vec::new());
    table::each(0, u32::MAX, |fd, entry| {
        let table::Entry::Socket(s) = entry else {
            return;
        };
        if all.len() + named.len() >= MOST {
            return;
        }
        if let Some(cookie) = residual::named(s) {
            named.push(cookie);
        } else if let Some((record, len)) = residual::record(s) {
            match place(record.cast()) {
                Some((file, offset)) => all.push((file, offset, len)),
                // (no file could be made for it, as under RLIMIT_FSIZE, and memory does not outlive the program)
                None if becomes && residual::left(s) > 0 && !s.has_others() && stays(fd) => {
                    net::disconnect(fd); // a reset, never a gap
                }
                None => {}
            }
        }
    });
    all.sort_unstable();
    all.dedup();
    let mut text = format!("{VARIABLE}=");
    for cookie in &named {
        let _ = write!(text, "@{cookie},");
    }
    for (cookie, handed) in &unasked {
        let _ = write!(text, "{}{cookie},", if *handed { '!' } else { '?' });
    }
    let mut files = Vec::new();
    for (file, offset, len) in all {
        // One that was closed without our knowledge, by a child that closes all it has, is no help.
        // SAFETY: no pointers.
        if unsafe { syscall!(fcntl, file, libc::F_GETFD) }.is_ok() {
            let _ = write!(text, "{file}:{offset}:{len},");
            files.push(file);
        }
    }
    files.dedup();
    if files.is_empty() && named.is_empty() && unasked.is_empty() {
        return None;
    }
    let text = CString::new(text).ok()?;
    let by_child = world::is_foreign();
    if !by_child {
        STANDING.fetch_add(1, Ordering::Relaxed);
    }
    for &file in &files {
        set_inherited(file, true);
    }
    Some(Announcement {
        text,
        files,
        by_child,
    })
}

/// A reset that the kernel has told the library, and nobody the program, is kept: behind what is left, or alone.
fn keep_resets() {
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && residual::is_reset_untold(s, fd)
        {
            let _w = world::lock();
            residual::keep_reset_alone(s, fd);
        }
    });
}

/// What may be asked yet, by the kernel's cookies, and whether others hold it beside the new program.
fn unasked() -> Vec<(u64, bool)> {
    let mut found = Vec::new();
    if world::is_foreign() {
        // (a child that borrows this memory has moved what it leaves to the new program to numbers of which nothing is known here)
        let unread = connections()
            .into_iter()
            .filter(|&(fd, _)| wired::is_unread(fd));
        let cookies = unread.filter_map(|(fd, _)| net::cookie(fd).ok());
        found.extend(cookies.take(MOST).map(|cookie| (cookie, true)));
    } else {
        table::each(0, u32::MAX, |fd, entry| {
            if let table::Entry::Socket(s) = entry
                && let Some(handed) = wired::is_unasked(s)
                && found.len() < MOST
            {
                found.extend(net::cookie(fd).map(|cookie| (cookie, handed)));
            }
        });
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Takes on what the variable announces. Once, at start, before the process knows of any socket.
pub(crate) fn adopt(value: &CStr) {
    let (mut entries, mut named) = (Vec::new(), Vec::<u64>::new());
    let mut unasked = Vec::<(u64, bool)>::new();
    for entry in value.to_bytes().split(|&b| b == b',').take(2 * MOST) {
        let entry = std::str::from_utf8(entry).unwrap_or("");
        if let Some(cookie) = entry.strip_prefix('@') {
            named.extend(cookie.parse::<u64>().ok());
            continue;
        }
        if let Some(cookie) = entry.strip_prefix(['?', '!']) {
            let cookie = cookie.parse::<u64>().ok();
            unasked.extend(cookie.map(|cookie| (cookie, entry.starts_with('!'))));
            continue;
        }
        let mut numbers = entry.split(':').map_while(|n| n.parse::<usize>().ok());
        if let (Some(file), Some(offset), Some(len)) =
            (numbers.next(), numbers.next(), numbers.next())
            && let Ok(file) = i32::try_from(file)
        {
            entries.push((file, offset, len));
        }
    }
    let sockets = if entries.is_empty() && named.is_empty() && unasked.is_empty() {
        Vec::new()
    } else {
        connections()
    };
    for (cookie, handed) in unasked {
        let is_it = |&&(fd, _): &&(i32, u64)| net::cookie(fd) == Ok(cookie) && wired::is_unread(fd);
        let its: Vec<_> = sockets.iter().filter(is_it).copied().collect();
        if follow(&its, |_, _| true)
            && let Some(&(fd, _)) = its.first()
            && let Some(s) = table::socket(fd)
        {
            let _w = world::lock();
            wired::begin_inherited(s, fd, handed);
        }
    }
    for cookie in named {
        let is_it = |&&(fd, _): &&(i32, u64)| net::cookie(fd) == Ok(cookie);
        if let Some(&(fd, inode)) = sockets.iter().find(is_it)
            && let Some(left) = forwarded::find(fd)
        {
            let its = sockets.iter().filter(|&&(_, i)| i == inode).copied();
            let its: Vec<_> = its.collect();
            let left = Cell::new(Some(left));
            follow(&its, |s, i| {
                left.take().is_some_and(|m| residual::join(s, m, i))
            });
        }
    }
    let mut parts = Vec::new();
    let mut files: Vec<i32> = Vec::new();
    for (file, offset, len) in entries {
        let fd = Fd::own(file);
        if let Some(part) = map(&fd, offset, len) {
            files.push(file);
            let record = std::ptr::with_exposed_provenance_mut::<residual::Residual>(part.at);
            // SAFETY: mapped for good, aligned, and as long as was checked.
            if follow(&sockets, |s, inode| unsafe {
                residual::adopt(record, len, s, inode)
            }) {
                parts.push(part);
            } else {
                // SAFETY: mapped just now, and nothing refers to it.
                let _ = unsafe { syscall!(munmap, part.at & !(PAGE - 1), part.len) };
            }
        }
        let _ = fd.leak(); // (other entries may name it; a descriptor that is none of ours stays)
    }
    files.sort_unstable();
    files.dedup();
    for file in files {
        if parts.iter().any(|p| p.file == file) {
            set_inherited(file, false);
            table::observe_hidden(file, true);
        } else {
            transport::sys::fd::close(file);
        }
    }
    let _ = ADOPTED.set(parts);
}

/// Maps a record of a file of ours.
fn map(file: &Fd, offset: usize, len: usize) -> Option<Part> {
    let end = offset.checked_add(len)?;
    let fits = sealed_size(file).is_some_and(|size| end <= size);
    if !fits || !offset.is_multiple_of(64) || len < size_of::<residual::Residual>() {
        return None;
    }
    let skip = offset % PAGE;
    let m = Mapping::shared(file, offset - skip, skip + len).ok()?;
    m.advise(libc::MADV_DONTDUMP);
    let len = m.len();
    Some(Part {
        at: m.leak().as_ptr().expose_provenance() + skip,
        len: len - skip,
        file: file.raw(),
        offset,
    })
}

/// The TCP connections that this process has from its start, and what the kernel calls them.
fn connections() -> Vec<(i32, u64)> {
    let limit = rlimit(libc::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let last = i32::try_from(limit.min(NUMBERS)).unwrap_or(0);
    let mut found = Vec::new();
    each_open(last, |fd| {
        if net::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
            && let Ok(inode) = inode(fd)
        {
            found.push((fd, inode));
        }
    });
    found
}

/// Follows the connection for which `reads` takes on what is left, under all its numbers. False if it is not here.
fn follow(sockets: &[(i32, u64)], reads: impl Fn(&Socket, u64) -> bool) -> bool {
    let mut w = world::lock();
    let mut found: Option<(&'static Socket, u64)> = None;
    for &(fd, inode) in sockets.iter().filter(|&&(fd, _)| table::can_hold(fd)) {
        if let Some((s, known)) = found {
            if known == inode {
                s.refs.fetch_add(1, Ordering::AcqRel);
                table::put_socket(fd, s);
            }
            continue;
        }
        let Some(s) = w.pool.take() else { return false };
        if !reads(s, inode) {
            w.pool.give(s);
            continue;
        }
        // SAFETY: no pointers.
        let flags = unsafe { syscall!(fcntl, fd, libc::F_GETFL) }.unwrap_or(0);
        let nonblock = flags & libc::O_NONBLOCK.cast_unsigned() as usize != 0;
        s.nonblock.store(nonblock, Ordering::Relaxed);
        options::take_over_kept(s, fd);
        s.record.fd.store(fd.cast_unsigned(), Ordering::Relaxed);
        s.set_phase(Phase::Plain);
        table::put_socket(fd, s);
        found = Some((s, inode));
    }
    found.is_some()
}
