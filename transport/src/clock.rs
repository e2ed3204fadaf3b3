//! A clock that costs no system call: the processor's counter, in ticks. Used to bound spinning and to
//! space out rare checks, never for anything a program sees.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Monotonic nanoseconds from the kernel, for deadlines.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime is not interposed and goes through the vDSO; `ts` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec.cast_unsigned() * 1_000_000_000 + ts.tv_nsec.cast_unsigned()
}

/// Measures the counter against the kernel's clock for a moment. Called once, at start.
pub fn calibrate() {
    let (t0, n0) = (ticks(), monotonic_ns());
    let mut n1 = n0;
    while n1 < n0 + 200_000 {
        n1 = monotonic_ns();
    }
    let per_us = (ticks() - t0) * 1000 / (n1 - n0).max(1);
    TICKS_PER_US.store(per_us.max(1), Ordering::Relaxed);
}
