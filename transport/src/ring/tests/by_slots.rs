//! The credit scheme: what a Send burns, and what a reader may give back.

use super::*;

/// Small messages that the peer does not read burn a credit each, and nothing more; what one call has fills slots.
#[test]
fn a_send_burns_a_credit_however_small_and_fills_its_slot_where_more_waits() {
    let mut sides = pair_of([(SMALL, false), (SMALL, true)]);
    let (size, slot) = (SMALL, SMALL / SLOTS);
    for i in 0..SLOTS {
        assert_eq!(sides[0].ring().room(), size - i * slot);
        sides[0].send(10, 1);
    }
    sides[0].send(10, 2);
    assert_eq!(
        (sides[0].sent.len(), sides[0].ring().room()),
        (10 * SLOTS, 0)
    );
    sides[0].settle();
    // A reader gives back what it has read once that is worth it.
    let few = slots::BACK as usize - 1;
    assert_eq!(sides[1].receive(10 * few), 10 * few);
    sides[1].settle();
    assert_eq!(sides[0].ring().room(), 0);
    assert_eq!(sides[1].receive(10), 10);
    sides[1].settle();
    assert_eq!(sides[0].ring().room(), (few + 1) * slot);
    // (a place at the end of the ring cuts one)
    let octets = few * slot;
    sides[0].send(octets, 3);
    sides[0].settle();
    assert!(sides[0].ring().room() <= slot);
    assert_eq!(sides[0].tx.put(), [0, (10 * SLOTS + octets) as u64]);
    assert_eq!(sides[1].tx.put(), [0; 2]);
    while sides[1].receive(SMALL) > 0 {}
    assert_eq!(sides[1].got, sides[0].sent);
}

#[test]
fn a_peer_that_gives_back_more_credits_than_were_burnt_is_refused() {
    let mut sides = pair_of([(RING, false), (RING, true)]);
    sides[0].send(10, 1);
    sides[0].settle();
    let taken = tell::Tell::Taken(2).to_word();
    sides[0].near.told.lock().unwrap().push_back(word(taken));
    sides[0].settle();
    assert_refused(&mut sides[0]);
}
