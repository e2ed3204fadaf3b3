//! Processes, threads and signals as the cases need them.

use super::{Fd, Ret, call};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

static CAUGHT: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

extern "C" fn count_signal(signal: i32) {
    CAUGHT[signal as usize].fetch_add(1, Ordering::SeqCst);
}

/// How often the counting handler ran for this signal.
pub fn caught(signal: i32) -> u32 {
    CAUGHT[signal as usize].load(Ordering::SeqCst)
}

/// A handler that wants the details.
pub type Detailed = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler with flags of the caller's choice.
pub fn detailed(signal: i32, handler: Detailed, flags: i32) {
    set_action(signal, handler as *const () as usize, flags);
}

/// The handler, flags and mask that a signal has.
pub fn action(signal: i32) -> (usize, i32, u64) {
    // SAFETY: all zeroes is a valid sigaction.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    call!(libc::sigaction(signal, std::ptr::null(), &raw mut old)).ok();
    // SAFETY: the kernel's mask is the first word.
    let mask = unsafe { (&raw const old.sa_mask).cast::<u64>().read() };
    (old.sa_sigaction, old.sa_flags, mask)
}

fn set_action(signal: i32, handler: usize, flags: i32) {
    // SAFETY: all zeroes is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    call!(libc::sigaction(
        signal,
        &raw const action,
        std::ptr::null_mut()
    ))
    .ok();
}

/// Counts this signal from now on.
pub fn count(signal: i32, restart: bool) {
    let flags = if restart { libc::SA_RESTART } else { 0 };
    set_action(signal, count_signal as *const () as usize, flags);
}

pub fn handle(signal: i32, handler: extern "C" fn(i32), restart: bool) {
    let flags = if restart { libc::SA_RESTART } else { 0 };
    set_action(signal, handler as *const () as usize, flags);
}

pub fn default_action(signal: i32) {
    set_action(signal, libc::SIG_DFL, 0);
}

pub fn ignore(signal: i32) {
    set_action(signal, libc::SIG_IGN, 0);
}

/// Blocks these signals in the calling thread.
pub fn block(signals: &[i32]) {
    let set = super::wait::sigset(signals);
    let none = std::ptr::null_mut();
    call!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, none)).ok();
}

pub fn unblock(signals: &[i32]) {
    let set = super::wait::sigset(signals);
    let none = std::ptr::null_mut();
    call!(libc::pthread_sigmask(
        libc::SIG_UNBLOCK,
        &raw const set,
        none
    ))
    .ok();
}

/// A thread that can be signalled and watched.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    process: u32,
    id: i32,
}

impl Thread {
    pub fn current() -> Self {
        let id = call!(libc::gettid()).ok() as i32;
        Self::of(std::process::id(), id)
    }

    /// A thread of any process, to be watched.
    pub fn of(process: u32, id: i32) -> Self {
        Self { process, id }
    }

    pub fn id(self) -> i32 {
        self.id
    }

    pub fn signal(self, signal: i32) {
        let pid = self.process as i32;
        call!(libc::syscall(libc::SYS_tgkill, pid, self.id, signal)).ok();
    }

    fn asleep(self) -> bool {
        let path = format!("/proc/{}/task/{}/stat", self.process, self.id);
        let stat = std::fs::read_to_string(path);
        let stat = stat.unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('S'))
    }

    /// Waits until the thread sleeps. It may be about to wake.
    pub fn wait_resting(self) {
        super::wait::eventually(|| self.asleep());
        std::thread::sleep(Duration::from_millis(2));
        super::wait::eventually(|| self.asleep());
    }

    /// Waits until the thread has been asleep in every one of several looks.
    pub fn wait_asleep(self) {
        let mut seen = 0;
        super::wait::eventually(|| {
            std::thread::sleep(Duration::from_millis(4));
            seen = if self.asleep() { seen + 1 } else { 0 };
            seen >= 6
        });
    }
}

/// Stops a process, wherever it is.
pub fn stop(pid: i32) {
    kill(pid, libc::SIGSTOP).ok();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" T"))
    };
    assert!(super::wait::eventually(is_stopped));
}

/// Stops a process whose threads all sleep. One that is stopped in the middle of something else goes on for a moment: the
/// library's own thread looks after what is to be sent now and then, and holds the stream meanwhile.
pub fn stop_asleep(child: i32) {
    const SLEEPS: [i64; 5] = [
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_epoll_pwait,
    ];
    Thread::of(child as u32, child).wait_asleep();
    let place = |tid: &std::ffi::OsStr, what: &str| {
        let path = format!("/proc/{child}/task/{}/{what}", tid.to_string_lossy());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let stops = super::wait::eventually(|| {
        kill(child, libc::SIGSTOP).ok();
        let tasks: Vec<_> = std::fs::read_dir(format!("/proc/{child}/task"))
            .into_iter()
            .flatten()
            .filter_map(|task| Some(task.ok()?.file_name()))
            .collect();
        let stopped = || {
            let is = |tid| {
                place(tid, "stat")
                    .rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.starts_with(" T"))
            };
            tasks.iter().all(|tid| is(tid))
        };
        super::wait::eventually(stopped);
        let rests = |tid| {
            let call = place(tid, "syscall");
            let number = call
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok());
            // (the kernel's own send sleeps with nothing held)
            let alone = tasks.len() == 1;
            number.is_some_and(|number| {
                SLEEPS.contains(&number) || alone && number == libc::SYS_sendto
            })
        };
        let rest = tasks.iter().all(|tid| rests(tid));
        if !rest {
            kill(child, libc::SIGCONT).ok();
        }
        rest
    });
    assert!(stops, "its threads never all slept");
}

/// A helper that acts once the calling thread, which it is given, has gone to sleep.
pub fn once_asleep<T: Send + 'static>(
    act: impl FnOnce(Thread) -> T + Send + 'static,
) -> JoinHandle<T> {
    let caller = Thread::current();
    std::thread::spawn(move || {
        caller.wait_asleep();
        act(caller)
    })
}

/// How often all threads of this process have gone to sleep so far.
pub fn sleeps() -> u64 {
    let own = |id: std::ffi::OsString| {
        let path = format!("/proc/self/task/{}/status", id.to_string_lossy());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |n| n.trim().parse::<u64>().unwrap())
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.map(|at| own(at.unwrap().file_name())).sum()
}

/// Forks; the child runs `body` and leaves with its value, without running exit handlers twice.
pub fn fork(body: impl FnOnce() -> i32) -> i32 {
    let pid = call!(libc::fork()).ok() as i32;
    if pid == 0 {
        let code = body();
        // SAFETY: ends the child, which is what it is for.
        unsafe { libc::_exit(code) }
    }
    pid
}

/// Whether a child has ended; it is left to be waited for.
pub fn has_ended(pid: i32) -> bool {
    // SAFETY: a structure of zeros is one, and writable.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    super::call!(libc::waitid(
        libc::P_PID,
        pid.cast_unsigned(),
        &raw mut info,
        flags
    ))
    .ok();
    // SAFETY: filled by waitid, or zeros.
    unsafe { info.si_pid() != 0 }
}

/// Waits until all threads of a process have ended, and with them what it had open; it may be anybody's child.
pub fn wait_ended(pid: i32) {
    let fd = call!(libc::syscall(libc::SYS_pidfd_open, pid, 0));
    if fd.is(libc::ESRCH) {
        return; // somebody has waited for it
    }
    super::wait::wait_for(fd.fd(), libc::POLLIN);
    super::net::close(fd.fd()).ok();
}

/// Waits for a child; "exit N" or "signal N".
pub fn wait_child(pid: i32) -> String {
    let mut status = 0;
    loop {
        let r = call!(libc::waitpid(pid, &raw mut status, 0));
        if !r.is(libc::EINTR) {
            r.ok();
            break;
        }
    }
    show_status(status)
}

pub fn show_status(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("signal {}", libc::WTERMSIG(status))
    } else {
        format!("exit {}", libc::WEXITSTATUS(status))
    }
}

pub fn kill(pid: i32, signal: i32) -> Ret {
    call!(libc::kill(pid, signal))
}

/// Ends this process the hard way.
pub fn die() -> ! {
    kill(std::process::id() as i32, libc::SIGKILL);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Replaces the process by this program; only returns on failure. One that does not keep the environment
/// is to run without the library, which an empty LD_PRELOAD says.
pub fn exec(arguments: &[&str], keep_environment: bool) -> Ret {
    let list: Vec<_> = arguments
        .iter()
        .map(|a| std::ffi::CString::new(*a).unwrap())
        .collect();
    let mut pointers: Vec<_> = list.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    if keep_environment {
        return call!(libc::execv(pointers[0], pointers.as_ptr()));
    }
    let (path, plain) = (c"PATH=/usr/bin:/bin", c"LD_PRELOAD=");
    let other = [path.as_ptr(), plain.as_ptr(), std::ptr::null()];
    call!(libc::execve(pointers[0], pointers.as_ptr(), other.as_ptr()))
}

/// Sets the soft limit and returns the one before.
pub fn limit(resource: libc::__rlimit_resource_t, soft: u64) -> u64 {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    call!(libc::getrlimit(resource, &raw mut old)).ok();
    let new = libc::rlimit {
        rlim_cur: soft.min(old.rlim_max),
        rlim_max: old.rlim_max,
    };
    call!(libc::setrlimit(resource, &raw const new)).ok();
    old.rlim_cur
}

pub fn eventfd(value: u32) -> Fd {
    call!(libc::eventfd(value, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)).fd()
}

/// A timer that fires once after this time.
pub fn timerfd(after: Duration) -> Fd {
    let fd = call!(libc::timerfd_create(
        libc::CLOCK_MONOTONIC,
        libc::TFD_CLOEXEC
    ))
    .fd();
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let value = libc::timespec {
        tv_sec: after.as_secs() as i64,
        tv_nsec: i64::from(after.subsec_nanos()),
    };
    let spec = libc::itimerspec {
        it_interval: zero,
        it_value: value,
    };
    call!(libc::timerfd_settime(
        fd,
        0,
        &raw const spec,
        std::ptr::null_mut()
    ))
    .ok();
    fd
}

/// KiB of shared memory that this process holds, its share of what others hold too.
pub fn shared_memory() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss_Shmem:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .expect("Linux says so")
}
