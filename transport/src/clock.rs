//! A clock that costs no system call: the processor's counter, in ticks. Used to bound spinning and to
//! space out rare checks, never for anything a program sees.

use crate::syscall;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

static TICKS_PER_US: AtomicU64 = AtomicU64::new(2000);

/// The counter now.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has rdtsc.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let v: u64;
        // SAFETY: the virtual counter is readable from user space on Linux.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) v, options(nomem, nostack)) };
        v
    }
}

/// Ticks in `us` microseconds.
#[inline]
#[must_use]
pub fn us(us: u64) -> u64 {
    us.saturating_mul(TICKS_PER_US.load(Ordering::Relaxed))
}

/// Nanoseconds in so many ticks.
#[must_use]
pub fn ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / TICKS_PER_US.load(Ordering::Relaxed)
}

/// The kernel's own clock_gettime in this process's memory (vDSO, vdso(7)); null before [`find`].
static KERNELS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// Looks for it. Not libc's function of that name, which other preloaded libraries take over (libfaketime): they would be
/// called before they have begun, and tell of a clock that the kernel does not sleep by. Nor by the `dlopen` of a program that
/// has its own (clang's thread sanitizer), which may not have begun either.
fn find() {
    type Open = unsafe extern "C" fn(*const libc::c_char, libc::c_int) -> *mut c_void;
    let open = crate::sys::libcs(c"dlopen");
    if open.is_null() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    const NAME: &std::ffi::CStr = c"__vdso_clock_gettime";
    #[cfg(target_arch = "aarch64")]
    const NAME: &std::ffi::CStr = c"__kernel_clock_gettime";
    // SAFETY: constant names, and a function of this type; a library that is there is not loaded, and this one never goes.
    unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        let open = std::mem::transmute::<*mut c_void, Open>(open);
        let here = open(c"linux-vdso.so.1".as_ptr(), flags);
        if !here.is_null() {
            KERNELS.store(libc::dlsym(here, NAME.as_ptr()), Ordering::Relaxed);
        }
    }
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let kernels = KERNELS.load(Ordering::Relaxed);
    // SAFETY: the vDSO's function has this type, as does the system call; `ts` is writable.
    unsafe {
        if kernels.is_null() {
            let _ = syscall!(clock_gettime, clock, &raw mut ts);
        } else {
            std::mem::transmute::<*mut c_void, Gettime>(kernels)(clock, &raw mut ts);
        }
    }
    ts
}

/// Monotonic nanoseconds from the kernel, for deadlines.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let ts = read(libc::CLOCK_MONOTONIC);
    ts.tv_sec.cast_unsigned() * 1_000_000_000 + ts.tv_nsec.cast_unsigned()
}

/// Seconds since 1970, as files are dated.
#[must_use]
pub fn wall_s() -> u64 {
    u64::try_from(read(libc::CLOCK_REALTIME).tv_sec).unwrap_or(0)
}

/// How long (ns) the two clocks are compared for.
const COMPARED_NS: u64 = 200_000;
/// How often both are read for one moment.
const READS: u32 = 8;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
}

impl Moment {
    /// Of several readings, each with the counter before and behind the clock, the closest: a thread that was
    /// put aside between the two for milliseconds would otherwise take the counter to be as many times faster, and all
    /// that this module measures would last as many times longer.
    fn closest(mut counter: impl FnMut() -> u64, mut clock: impl FnMut() -> u64) -> Self {
        let mut closest = u64::MAX;
        let mut moment = Self { ticks: 0, ns: 0 };
        for _ in 0..READS {
            let before = counter();
            let ns = clock();
            let width = counter().saturating_sub(before);
            if width < closest {
                closest = width;
                moment = Self {
                    ticks: before + width / 2,
                    ns,
                };
            }
        }
        moment
    }

    fn now() -> Self {
        Self::closest(ticks, monotonic_ns)
    }

    /// Ticks a microsecond since then; at least 1.
    fn rate_until(self, later: Self) -> u64 {
        let ns = later.ns.saturating_sub(self.ns).max(1);
        let ticks = later.ticks.saturating_sub(self.ticks);
        (ticks.saturating_mul(1000) / ns).max(1)
    }
}

/// Measures the counter against the kernel's clock for a moment. Called once, at start.
pub fn calibrate() {
    find();
    let begun = Moment::now();
    while monotonic_ns() < begun.ns + COMPARED_NS {}
    TICKS_PER_US.store(begun.rate_until(Moment::now()), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A machine with 2 ticks a nanosecond, on which every reading takes 20 ns, and the thread is put aside
    /// for 10 ms before these readings.
    fn closest(at: &Cell<u64>, aside: &[u32]) -> Moment {
        let readings = Cell::new(0);
        let read = || {
            let late = aside.contains(&readings.replace(readings.get() + 1));
            at.set(at.get() + 20 + u64::from(late) * 10_000_000);
            at.get()
        };
        Moment::closest(|| 2 * read(), read)
    }

    #[test]
    fn being_put_aside_does_not_change_the_rate() {
        for first in 0..3 * READS {
            for second in 0..3 * READS {
                let at = Cell::new(1_000_000);
                let begun = closest(&at, &[first]);
                at.set(at.get() + COMPARED_NS);
                let rate = begun.rate_until(closest(&at, &[second]));
                assert!((1990..=2010).contains(&rate), "{first}, {second}: {rate}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_does_no_harm() {
        let still = Moment { ticks: 5, ns: 5 };
        assert_eq!(still.rate_until(still), 1);
    }
}
