//! select and pselect over connections and every other kind of descriptor.

use super::Case;
use super::poll::Mix;
use crate::log;
use crate::side::Side;
use crate::sys::wait::Select;
use crate::sys::{Fd, io, net, proc, wait};
use libc::POLLIN;

pub(super) const CASES: &[Case] = &[
    Case::pair("select_states", select_states),
    Case::pair("select_mixed", select_mixed),
    Case::pair("select_errors", select_errors).processes_only(),
    Case::pair("select_wakes", select_wakes),
    Case::pair("select_beyond_the_sets", select_beyond_the_sets).processes_only(),
    Case::pair("select_bad_sets", select_bad_sets).processes_only(),
    Case::pair("ppoll_and_pselect", ppoll_and_pselect),
    Case::moving("select_all_while_peer_forks", select_all_while_peer_forks),
];

fn select_all(fd: Fd) -> Select<'static> {
    let list: &'static [Fd] = Box::leak(Box::new([fd]));
    Select {
        read: list,
        write: list,
        except: list,
    }
}

fn select_states(s: &Side) {
    let fd = s.pair();
    let now = Some(wait::millis(0));
    let all = select_all(fd);
    log!(s, "quiet {}", all.select(now));
    log!(
        s,
        "read only {}",
        Select {
            write: &[],
            except: &[],
            ..all
        }
        .select(Some(wait::millis(5)))
    );
    s.sync("quiet");
    io::send_all(fd, b"abc").ok();
    wait::wait_for(fd, POLLIN);
    log!(s, "data {}", all.select(None));
    io::recv_exact(fd, 3);
    log!(s, "read {}", all.select(now));
    s.sync("read");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLHUP);
    log!(s, "ended {}", all.select(None));
    s.sync("done");
}

fn select_mixed(s: &Side) {
    let fd = s.pair();
    let mix = Mix::new();
    let read = [fd, mix.pipe.0, mix.event, mix.unix.0, mix.idle];
    let what = Select {
        read: &read,
        write: &[fd, mix.pipe.1, mix.unix.1],
        except: &[fd],
    };
    log!(s, "quiet {}", what.select(None));
    io::write(mix.pipe.1, b"x").ok();
    log!(s, "pipe {}", what.select(None));
    s.sync("pipe");
    io::send_all(fd, b"x").ok();
    wait::wait_for(fd, POLLIN);
    log!(s, "both {}", what.select(None));
    log!(s, "pselect {}", what.pselect(None, None));
    s.sync("done");
}

fn select_errors(s: &Side) {
    let fd = s.pair();
    let gone = net::dup(fd).fd();
    net::close(gone).ok();
    log!(
        s,
        "closed {}",
        Select {
            read: &[fd, gone],
            write: &[],
            except: &[]
        }
        .select(None)
    );
    log!(
        s,
        "none {}",
        Select {
            read: &[],
            write: &[],
            except: &[]
        }
        .select(Some(wait::millis(5)))
    );
    let null = std::ptr::null_mut();
    log!(
        s,
        "negative {}",
        crate::sys::call!(libc::select(-1, null, null, null, std::ptr::null_mut()))
    );
    let mut bad = libc::timeval {
        tv_sec: -1,
        tv_usec: 0,
    };
    log!(
        s,
        "bad time {}",
        crate::sys::call!(libc::select(0, null, null, null, &raw mut bad))
    );
    s.sync("done");
}

fn select_wakes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let helper = s.tell_once_asleep();
        log!(
            s,
            "{}",
            Select {
                read: &[fd],
                write: &[],
                except: &[]
            }
            .select(None)
        );
        helper.join().unwrap();
    } else {
        s.hear();
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

fn ppoll_and_pselect(s: &Side) {
    let fd = s.pair();
    let read = Select {
        read: &[fd],
        write: &[],
        except: &[],
    };
    let short = Some(std::time::Duration::from_micros(300));
    log!(s, "{}", wait::ppoll(&[(fd, POLLIN)], short, None));
    log!(s, "{}", read.pselect(short, None));
    s.sync("quiet");
    io::send_all(fd, b"x").ok();
    log!(
        s,
        "{}",
        wait::ppoll(&[(fd, POLLIN)], None, Some(&[libc::SIGUSR1]))
    );
    log!(s, "{}", read.pselect(None, Some(&[libc::SIGUSR1])));
    s.sync("done");
}

/// Programs name more descriptors than their sets have bits (getdtablesize): what lies behind a set is no part of it.
fn select_beyond_the_sets(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    for n in [1025, 4096, 60_000, 1_000_000] {
        let mut memory = vec![u64::MAX; 1 << 14];
        let set = memory.as_mut_ptr();
        // SAFETY: a set of 1024 bits is at the beginning, and what lies behind it is ours.
        unsafe {
            std::ptr::write_bytes(set, 0, 16);
            libc::FD_SET(fd, set.cast());
        }
        let null = std::ptr::null_mut();
        let got = crate::sys::call!(libc::select(n, set.cast(), null, null, null.cast()));
        let behind = memory.iter().skip(16).all(|word| *word == u64::MAX);
        log!(s, "{n}: {got}, nothing else touched: {behind}");
    }
    log!(s, "{}", io::recv_exact(fd, 1).1);
    s.sync("done");
}

fn select_bad_sets(s: &Side) {
    let fd = s.pair();
    let mut time = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let (null, bad) = (
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut::<libc::fd_set>(8),
    );
    for sets in [[bad, null, null], [null, bad, null], [null, null, bad]] {
        let [r, w, x] = sets;
        let got = crate::sys::call!(libc::select(fd + 1, r, w, x, &raw mut time));
        log!(s, "{got}");
    }
    s.sync("done");
}

/// Nothing of urgent data is about, so a select is told of data or the end alone, and a read finds what it was told of.
fn select_all_while_peer_forks(s: &Side) {
    for round in 0..12 {
        let fd = s.pair();
        if s.a() {
            for i in 0..100 {
                io::send(fd, b"12345", 0).ok();
                if i == 30 + 2 * round {
                    let child = proc::fork(|| 0);
                    log!(s, "{}", proc::wait_child(child));
                }
            }
        } else {
            net::set_nonblocking(fd, true).ok();
            log!(s, "bad {}", read_as_told(fd, 500));
        }
        s.sync("sent");
        net::close(fd).ok();
    }
}

/// Selects for data and exceptions before each read, of so many bytes. How often that found something else than data.
fn read_as_told(fd: Fd, mut left: i64) -> u32 {
    let list = [fd];
    let waits = Select {
        read: &list,
        write: &[],
        except: &list,
    };
    let mut bad = 0;
    while left > 0 && bad < 100 {
        let told = waits.select(Some(wait::millis(5000)));
        let r = io::recv(fd, &mut [0; 64], 0).0;
        left -= r.max(0);
        bad += u32::from(r <= 0 || told != "1 r[0] w[] e[]");
    }
    bad
}
