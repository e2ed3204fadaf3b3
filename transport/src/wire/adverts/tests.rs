use super::*;

#[test]
fn names_are_known_by_their_numbers() {
    let words = Adverts::new();
    assert_eq!(words.extent(source_stag(1)), None);
    words.open(1, 100);
    assert_eq!(words.extent(source_stag(1)), Some(100));
    assert_eq!(words.extent(sink_stag(1)), None);
    assert_eq!(words.extent(source_stag(2)), None);
    words.close();
    assert_eq!(words.extent(source_stag(1)), Some(0));
    words.open(2, 7);
    assert_eq!(words.extent(source_stag(1)), Some(0));
    assert_eq!(words.extent(source_stag(2)), Some(7));
    let last = u32::MAX >> NUMBER;
    words.open(last, 7);
    assert_eq!(next(last), 1);
    words.open(1, 9);
    assert_eq!(words.extent(source_stag(last)), Some(0));
    assert_eq!(words.extent(source_stag(1)), Some(9));
}

#[test]
fn reads_come_out_as_they_went_in_and_have_their_bounds() {
    let words = Adverts::new();
    let mut turn = 0;
    for round in 0..5 {
        for i in 0..20 {
            assert!(words.put(&Asked {
                source: 256,
                offset: i,
                len: round,
                sink: 257,
                sink_offset: 1 << 40,
            }));
        }
        for i in 0..20 {
            let asked = words.asked(turn).unwrap();
            assert_eq!((asked.offset, asked.len), (i, round));
            assert_eq!((asked.source, asked.sink), (256, 257));
            assert_eq!(asked.sink_offset, 1 << 40);
            turn += 1;
        }
        assert_eq!(words.asked(turn), None);
        words.note_taken(turn);
    }
    let any = Asked {
        source: 256,
        offset: 0,
        len: 1,
        sink: 257,
        sink_offset: 0,
    };
    let fits = (0..100).filter(|_| words.put(&any)).count();
    assert_eq!(fits, PLACES);
}

#[test]
fn what_is_read_is_told_whole() {
    let words = Adverts::new();
    assert_eq!(words.reading(), None);
    let reading = Reading {
        source: 512,
        address: 77,
        sink: 513,
        len: 100_000,
        allowed: 1,
    };
    words.tell_reading(Some(reading));
    assert_eq!(words.reading(), Some(reading));
    let more = Reading {
        allowed: 2,
        ..reading
    };
    words.tell_reading(Some(more));
    assert_eq!(words.reading(), Some(more));
    words.tell_reading(None);
    assert_eq!(words.reading(), None);
}
