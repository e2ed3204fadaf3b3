//! Who holds a stream: ends of it, duplicates, children, programs, messages, stdio.

use super::edge;
use super::end::End;
use super::give::note;
use super::plan::Step;
use crate::run::goes_far;
use crate::sys::{Fd, Ret, call, io, net, pass, proc, wait};
use crate::walk::plan::bytes;

pub fn shutdown(e: &mut End, step: &Step, fd: Fd) {
    let how = [libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR, libc::SHUT_WR][step.words[0] % 4];
    let r = net::shutdown(fd, how);
    e.told(&format!("shutdown {how}"), r);
    let own = &mut e.conns[step.conn].own;
    if r.0 == 0 && how != libc::SHUT_RD {
        own.shut_wr = 1;
    }
    if r.0 == 0 && how != libc::SHUT_WR {
        own.shut_rd = 1;
    }
}

pub fn close(e: &mut End, step: &Step, fd: Fd) {
    let last = e.conns[step.conn].fds.len() == 1;
    if last && step.words[0].is_multiple_of(3) {
        let linger = net::linger(fd, true, 0);
        e.told("linger", linger);
        e.conns[step.conn].own.broken = 1;
    }
    if last && e.conns[step.conn].queued() > 0 {
        e.conns[step.conn].own.broken = 1;
    }
    e.sets.forget(fd);
    let r = if step.words[1].is_multiple_of(3) {
        call!(libc::close_range(fd as u32, fd as u32, 0))
    } else {
        edge::close(e, fd)
    };
    e.conns[step.conn].fds.retain(|f| *f != fd);
    e.told("close", r);
}

pub fn dup(e: &mut End, step: &Step, fd: Fd) {
    if e.conns[step.conn].fds.len() > 3 {
        return;
    }
    let new = match step.words[0] % 4 {
        0 => net::dup(fd),
        1 => net::dup2(fd, 200 + (step.words[1] % 50) as i32 + 100 * e.end as i32),
        2 => net::dup3(
            fd,
            500 + (step.words[1] % 50) as i32 + 100 * e.end as i32,
            0,
        ),
        _ => net::fcntl(fd, libc::F_DUPFD, 30),
    };
    e.line(&format!("dup {} {}", step.words[0] % 4, new.0 >= 0));
    // A number that was in use has left what it was.
    for c in &mut e.conns {
        c.fds.retain(|f| *f != new.fd());
    }
    e.conns[step.conn].fds.push(new.fd());
}

/// What a child or another program does with the stream: sends this, and takes what is there. (Between hosts a ring ends first, and there
/// is room again once the peer has answered, where the kernel has it at once.)
pub fn serve(fd: Fd, text: &[u8], most: usize) -> (Ret, Ret) {
    if goes_far() {
        wait::poll(&[(fd, libc::POLLOUT)], 300);
    }
    let sent = io::send(fd, text, libc::MSG_NOSIGNAL);
    let got = io::recv(fd, &mut vec![0; most], libc::MSG_DONTWAIT);
    (sent, got)
}

/// Runs `body` in a child, which tells through a pipe what its calls came to.
fn in_child(e: &mut End, step: &Step, what: &str, body: impl FnOnce(Fd) -> i32) {
    let (out, into) = net::pipe();
    let child = proc::fork(|| body(into));
    net::close(into).ok();
    let mut both = [0i64; 2];
    // SAFETY: two plain numbers.
    let room = unsafe { std::slice::from_raw_parts_mut(both.as_mut_ptr().cast::<u8>(), 16) };
    let r = io::read(out, room);
    net::close(out).ok();
    e.line(&format!(
        "{what} {} {r} {} {}",
        proc::wait_child(child),
        Ret(both[0]),
        Ret(both[1])
    ));
    note(e, step.conn, Ret(both[0]));
    e.conns[step.conn].own.read += both[1].max(0) as u64;
}

pub fn report(into: Fd, sent: Ret, got: Ret) {
    io::write(into, &[sent.0.to_le_bytes(), got.0.to_le_bytes()].concat());
}

fn text(e: &End, step: &Step) -> Vec<u8> {
    let c = &e.conns[step.conn];
    bytes(
        step.conn + c.round * 4,
        e.end,
        c.own.sent,
        1 + step.words[0] % 99,
    )
}

pub fn fork(e: &mut End, step: &Step, fd: Fd) {
    let (text, most) = (text(e, step), step.words[1] % 3000 + 1);
    in_child(e, step, "fork", |into| {
        let (sent, got) = serve(fd, &text, most);
        report(into, sent, got);
        0
    });
}

pub fn exec(e: &mut End, step: &Step, fd: Fd) {
    let text = text(e, step);
    let most = (step.words[1] % 3000 + 1).to_string();
    // What a peer that is in no call of the library was not there to take back is lost to a program without it.
    let loaded = step.words[2].is_multiple_of(2) || e.conns[step.conn].queued() > 0;
    in_child(e, step, "exec", |into| {
        net::fcntl(fd, libc::F_SETFD, 0);
        net::fcntl(into, libc::F_SETFD, 0);
        let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let hex: String = text.iter().map(|b| format!("{b:02x}")).collect();
        let own = own.to_string_lossy();
        proc::exec(
            &[
                &own,
                "@serve",
                &fd.to_string(),
                &into.to_string(),
                &hex,
                &most,
            ],
            loaded,
        );
        9
    });
}

/// To itself: another number for the same stream.
pub fn pass(e: &mut End, step: &Step, fd: Fd) {
    let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
    pass::send_fd(left, fd);
    let new = pass::recv_fd(right, 0);
    net::close(left).ok();
    net::close(right).ok();
    e.line("passed");
    e.conns[step.conn].fds.push(new);
}

pub fn stdio(e: &mut End, step: &Step, fd: Fd) {
    let c = &e.conns[step.conn];
    if c.nonblock || c.own.shut_wr > 0 || c.ends() {
        return;
    }
    let data = text(e, step);
    // SAFETY: the FILE is this call's alone and closed once.
    let n = unsafe {
        let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
        let n = libc::fwrite(data.as_ptr().cast(), 1, data.len(), file);
        libc::fclose(file);
        n
    };
    e.line(&format!("stdio {n}"));
    note(e, step.conn, Ret(n as i64));
}
