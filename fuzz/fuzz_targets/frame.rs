//! What one end frames, by each of the three ways, the other end takes apart.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::iwarp::mpa::{
    Deframer, Framer, Inbox, LARGEST_FPDU, Markers, Parts, Vector, generic,
};

fuzz_target!(|input: (bool, bool, u8, Vec<&[u8]>)| {
    let (markers, crc, head, ulpdus) = input;
    let markers = Markers::wanted(markers);
    let head = vec![head; usize::from(head) % 47];
    let (mut one, mut three) = (Framer::new(markers, crc), Framer::new(markers, crc));
    let mut two = generic::Sender::new(markers, crc);
    let mut inbox = Inbox::new(Deframer::new(markers, crc), 0);
    for payload in ulpdus {
        let mut outs = [vec![0; LARGEST_FPDU], vec![0xff; LARGEST_FPDU]];
        let parts = || Parts::one(payload);
        let len = one
            .frame(&head, &mut parts(), payload.len(), &mut outs[0])
            .unwrap();
        let same = two.frame(&head, &mut parts(), payload.len(), &mut outs[1]);
        assert_eq!(same, Ok(len));
        let mut scratch = vec![0; 2048];
        let mut vector = Vector::<600>::new(&mut scratch);
        let mut parts = Parts::one(payload);
        let same = three.frame_in_place(&head, &mut parts, payload.len(), &mut vector);
        assert_eq!(same, Ok(len));
        assert_eq!(outs[0][..len], outs[1][..len]);
        let listed: Vec<u8> = vector
            .slices()
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert_eq!(outs[0][..len], listed);
        assert_eq!(inbox.put(&outs[0][..len]), len);
        let ulpdu = inbox.next().unwrap().unwrap();
        let got: Vec<u8> = ulpdu.pieces().flatten().copied().collect();
        assert_eq!(got, [&head, payload].concat());
    }
});
