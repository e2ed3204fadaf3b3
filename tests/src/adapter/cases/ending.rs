//! What ends a queue pair, and what is told and left alone then.

use super::super::Role;
use super::super::side::{LEN, Side, ensure};
use super::{WORD, both_at_once};
use std::time::{Duration, Instant};

/// A Write that is not allowed: it fails, so does what comes behind it, and nothing has arrived.
pub(super) fn violation(side: &mut Side, wrong: fn(&mut u64, &mut u32)) -> Result<(), String> {
    if side.role == Role::Asks {
        let pair = &side.pair;
        pair.fill(WORD, &[1; 8]);
        let mut work = pair.write(WORD, 8, 1);
        wrong(&mut work.remote, &mut work.rkey);
        pair.post(&[work, pair.write(WORD, 8, 2)])?;
        pair.done_badly(1)?;
        pair.done_badly(2)?;
        pair.post(&[pair.write(WORD, 8, 3)])?;
        pair.done_badly(3)?;
    }
    side.meet()?;
    if side.role == Role::Serves {
        let octets = side.pair.octets(0, LEN);
        ensure!(
            octets.iter().all(|octet| *octet == 0),
            "something has arrived"
        );
    }
    side.meet()
}

pub(super) fn nothing_arrives(side: &mut Side) -> Result<(), String> {
    side.pair = side.another_that_gives_up()?;
    if side.role == Role::Serves {
        side.pair.adapter.fail();
        side.meet()?;
        side.meet()?;
        let octets = side.pair.octets(0, LEN);
        ensure!(
            octets.iter().all(|octet| *octet == 0),
            "something has arrived"
        );
        return Ok(());
    }
    side.meet()?;
    let pair = &side.pair;
    pair.fill(0, &[1; 4096]);
    let posted = Instant::now();
    pair.post(&[pair.write(0, 4096, 7)])?;
    pair.done_badly(7)?;
    println!("  told after {} ms", posted.elapsed().as_millis());
    side.meet()
}

pub(super) fn posted_after_failing(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        let pair = &side.pair;
        pair.adapter.fail();
        pair.fill(0, &[1; 64]);
        pair.post(&[pair.write(0, 64, 1), pair.read(4096, 64, 2)])?;
        pair.done_badly(1)?;
        pair.done_badly(2)?;
        side.meet()
    };
    if side.role == Role::Asks {
        return does(side);
    }
    side.meet()?;
    let octets = side.pair.octets(0, 64);
    ensure!(octets == [0; 64], "something has arrived");
    Ok(())
}

pub(super) fn a_side_has_gone(side: &mut Side) -> Result<(), String> {
    let pair = side.another_that_gives_up()?;
    if side.role == Role::Serves {
        drop(pair);
        side.meet()?;
    } else {
        side.meet()?;
        let posted = Instant::now();
        pair.post(&[pair.read(0, 64, 1)])?;
        pair.done_badly(1)?;
        println!("  told after {} ms", posted.elapsed().as_millis());
    }
    // The other one is as it was.
    both_at_once(side)
}

pub(super) fn another_kind(side: &mut Side) -> Result<(), String> {
    use transport::verbs::Address;
    use transport::verbs::address::{Iwarp, Kind, Pair, gid_of};
    let own = side.pair.adapter.address();
    let ip = gid_of(&std::net::Ipv4Addr::new(10, 77, 0, 9).into());
    let pair = |kind| {
        Address::Pair(Pair {
            kind,
            mtu: 3,
            qpn: 7,
            psn: 1,
            gid: ip,
            takes: false,
        })
    };
    let address = match own {
        Address::Pair(own) if own.kind == Kind::StandIn => pair(Kind::Roce),
        Address::Pair(_) => pair(Kind::StandIn),
        Address::Iwarp(_) => pair(Kind::Roce),
    };
    let connected = side.pair.adapter.connect(&address);
    ensure!(connected.is_err(), "connected to {address:?}");
    if let Address::Pair(_) = own {
        let address = Address::Iwarp(Iwarp {
            ip,
            port: Some(7),
            secret: 7,
        });
        let connected = side.pair.adapter.connect(&address);
        ensure!(connected.is_err(), "connected to {address:?}");
    }
    side.meet()
}

/// Or waited for, where TCP carries it all.
pub(super) fn a_cut_link_is_told(side: &mut Side) -> Result<(), String> {
    side.pair = side.another_that_gives_up()?;
    if side.role == Role::Asks && !side.pair.is_acknowledged() {
        side.cut()?;
        let posted = side.pair.post(&[side.pair.write(0, 4096, 1)]);
        std::thread::sleep(Duration::from_millis(500));
        side.mend()?;
        posted?;
        side.pair.done_well(1)?;
        side.pair.placed()?;
    } else if side.role == Role::Asks {
        side.cut()?;
        let pair = &side.pair;
        let posted = Instant::now();
        let told = pair
            .post(&[pair.write(0, 4096, 1)])
            .and_then(|()| pair.done_badly(1));
        println!("  told after {} ms", posted.elapsed().as_millis());
        side.mend()?;
        told?;
    }
    side.meet()?;
    side.pair = side.another()?;
    both_at_once(side)
}
