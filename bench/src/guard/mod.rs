//! `bench guard`: what it costs to let a message stay where it is until it has been read (asynchronous zero
//! copy), mechanism by mechanism, with no library. Owns what is measured and how it is printed; the
//! mechanisms themselves are in `ways` and `trap`.

mod trap;
mod ways;

use crate::stats::Spread;
use crate::sys::{self, Cores};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use ways::{Fault, Memory};

const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Repetitions of every figure
    #[arg(long, default_value_t = 101)]
    reps: usize,
}

/// A figure: what it is called, and how it is taken once (microseconds).
type Figure<'a> = (&'a str, Box<dyn FnMut() -> f64 + 'a>);

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    println!("µs, median (min–max); protection by mprotect and by userfaultfd");
    let cores = sys::cores();
    for threads in [1, 2] {
        // A change of protection has to reach every core that runs a thread of the process.
        Cores::one(0).bind()?;
        let stop = Arc::new(AtomicBool::new(false));
        let other = (threads == 2).then(|| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let _ = Cores::one(cores - 1).bind();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        println!(
            "{threads} thread{}",
            if threads == 1 { "" } else { "s running" }
        );
        for size in SIZES {
            one_size(size, args.reps)?;
        }
        stop.store(true, Ordering::Relaxed);
        if let Some(other) = other {
            other.join().ok();
        }
    }
    let (plain, allowed, trapped) = trap::measure(args.reps)?;
    println!(
        "a system call {plain} ns; with dispatch set up {allowed}; trapped and made again {trapped}"
    );
    Ok(())
}

/// Takes each figure in turn, round after round, so that all of them see the machine in the same moods.
fn take(figures: &mut [Figure<'_>], reps: usize) -> Vec<(String, Spread)> {
    let mut samples: Vec<Vec<f64>> = figures.iter().map(|_| Vec::new()).collect();
    for _ in 0..reps.max(1) {
        for ((_, figure), samples) in figures.iter_mut().zip(&mut samples) {
            samples.push(figure());
        }
    }
    figures
        .iter()
        .zip(samples)
        .filter_map(|((name, _), s)| Some(((*name).to_owned(), Spread::of(&s)?)))
        .collect()
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

fn one_size(size: usize, reps: usize) -> anyhow::Result<()> {
    // One memory each: what userfaultfd has registered is a mapping of another kind.
    let (a, b, c) = (Memory::new(size)?, Memory::new(size)?, Memory::new(size)?);
    let watched = ways::Userfault::register(&b)?;
    let pipe = ways::Pipe::new()?;
    let copy = Memory::new(size)?;
    let held = size.min(pipe.capacity);
    let mut figures: Vec<Figure<'_>> = vec![
        ("mprotect: protect", Box::new(|| timed(|| a.protect(true)))),
        (
            "mprotect: give back",
            Box::new(|| timed(|| a.protect(false))),
        ),
        (
            "userfaultfd: protect",
            Box::new(|| timed(|| watched.protect(&b, true))),
        ),
        (
            "userfaultfd: give back",
            Box::new(|| timed(|| watched.protect(&b, false))),
        ),
        (
            "userfaultfd: register, and back",
            Box::new(|| {
                timed(|| {
                    watched.add(&c);
                    watched.remove(&c);
                })
            }),
        ),
        (
            "mprotect: fault, one page",
            Box::new(|| {
                a.protect(true);
                let us = ways::fault(&a, Fault::Protection);
                a.protect(false);
                us
            }),
        ),
        (
            "userfaultfd: fault, one page",
            Box::new(|| {
                watched.protect(&b, true);
                let us = ways::fault(&b, Fault::Userfault(&watched));
                watched.protect(&b, false);
                us
            }),
        ),
        (
            "hold by vmsplice",
            Box::new(|| {
                let us = timed(|| pipe.hold(&c, held));
                pipe.drain(&copy);
                us
            }),
        ),
        (
            "pull from the pipe",
            Box::new(|| {
                c.dirty();
                pipe.hold(&c, held);
                timed(|| pipe.drain(&copy))
            }),
        ),
        (
            "pull by process_vm_readv",
            Box::new(|| {
                c.dirty();
                timed(|| ways::pull(&c, &copy, held))
            }),
        ),
        (
            "memcpy",
            Box::new(|| {
                c.dirty();
                timed(|| c.copy_to(&copy, held))
            }),
        ),
        (
            "new frames (copy on write)",
            Box::new(|| {
                c.dirty();
                pipe.hold(&c, held);
                let us = timed(|| c.renew(held));
                pipe.drain(&copy);
                us
            }),
        ),
    ];
    println!(
        "  {} KiB{}",
        size >> 10,
        if held < size { " (pipe: 1024 KiB)" } else { "" }
    );
    for (name, spread) in take(&mut figures, reps) {
        println!("    {name:<32} {spread}");
    }
    Ok(())
}
