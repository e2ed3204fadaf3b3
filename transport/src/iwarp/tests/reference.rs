//! A decoder written apart from the one under test, as the RFCs' text says it and with no thought of speed: markers are taken
//! out by position, FPDUs found by length, sums made bit by bit, headers read field by field. It shares no code with
//! the rest of this layer.

/// RFC 3720 section 12.1: polynomial 0x11EDC6F41, reflected.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = 0xffff_ffff_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

/// All ULPDUs of a stream that begins `position` octets behind its first marker; or what is wrong with it.
pub(super) fn ulpdus(
    stream: &[u8],
    position: usize,
    markers: bool,
    crc: bool,
) -> Result<Vec<Vec<u8>>, String> {
    // RFC 5044 section 4.3: a marker at each octet whose distance from the first one is divisible by 512.
    let is_marker = |at: usize| markers && (position + at) % 512 < 4;
    let plain: Vec<(usize, u8)> = stream
        .iter()
        .enumerate()
        .filter(|(at, _)| !is_marker(*at))
        .map(|(at, octet)| (at, *octet))
        .collect();
    let mut found = Vec::new();
    let mut next = 0;
    while next < plain.len() {
        if plain.len() < next + 2 {
            return Err("cut in a length".into());
        }
        let length = usize::from(plain[next].1) * 256 + usize::from(plain[next + 1].1);
        let mut padded = 2 + length;
        while padded % 4 != 0 {
            padded += 1;
        }
        if plain.len() < next + padded + 4 {
            return Err("cut in an FPDU".into());
        }
        let start = plain[next].0;
        let field = plain[next + padded].0;
        // Section 4.4: a marker right before the length is summed with this FPDU.
        let from = if start >= 4 && is_marker(start - 4) {
            start - 4
        } else {
            start
        };
        let mut at = from;
        while at < field {
            if is_marker(at) {
                let points = usize::from(stream[at + 2]) * 256 + usize::from(stream[at + 3]);
                let distance = at.saturating_sub(start);
                if points != distance {
                    return Err(format!(
                        "marker at {at} points {points}, not {distance} back"
                    ));
                }
                at += 4;
            } else {
                at += 1;
            }
        }
        let sum = crc32c(&stream[from..field]).to_le_bytes();
        if crc && sum != stream[field..field + 4] {
            return Err(format!("sum at {field}"));
        }
        let octets = &plain[next + 2..next + 2 + length];
        found.push(octets.iter().map(|(_, octet)| *octet).collect());
        next += padded + 4;
    }
    Ok(found)
}

/// A segment, read field by field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub tagged: bool,
    pub last: bool,
    pub opcode: u8,
    /// STag, or what stands there in an untagged header.
    pub stag: u32,
    /// TO or MO.
    pub offset: u64,
    /// QN and MSN.
    pub queue: u32,
    pub message: u32,
    pub payload: Vec<u8>,
}

fn number(octets: &[u8]) -> u64 {
    octets
        .iter()
        .fold(0, |sum, octet| sum * 256 + u64::from(*octet))
}

/// RFC 5041 section 4 and RFC 5040 section 4.1.
pub(super) fn segment(ulpdu: &[u8]) -> Segment {
    assert_eq!(ulpdu[0] & 3, 1, "DDP version");
    assert_eq!(ulpdu[1] >> 6, 1, "RDMAP version");
    let tagged = ulpdu[0] & 0x80 != 0;
    let word = |at: usize| number(&ulpdu[at..at + 4]) as u32;
    Segment {
        tagged,
        last: ulpdu[0] & 0x40 != 0,
        opcode: ulpdu[1] & 0xf,
        stag: word(2),
        offset: if tagged {
            number(&ulpdu[6..14])
        } else {
            number(&ulpdu[14..18])
        },
        queue: if tagged { 0 } else { word(6) },
        message: if tagged { 0 } else { word(10) },
        payload: ulpdu[if tagged { 14 } else { 18 }..].to_vec(),
    }
}

/// Layer, type, code, segment length, header and Read Request of a Terminate (RFC 5040 section 4.8).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Terminated {
    pub numbers: (u8, u8, u8),
    pub segment_len: Option<u16>,
    pub header: Option<Vec<u8>>,
    pub read: Option<Vec<u8>>,
}

pub(super) fn terminated(payload: &[u8]) -> Terminated {
    let (length, header, request) = (
        payload[2] & 0x80 != 0,
        payload[2] & 0x40 != 0,
        payload[2] & 0x20 != 0,
    );
    let mut at = 4;
    let mut take = |len: usize| {
        at += len;
        payload[at - len..at].to_vec()
    };
    let segment_len = (length || header).then(|| number(&take(2)) as u16);
    let header = header.then(|| {
        let tagged = payload[6] & 0x80 != 0;
        take(if tagged { 14 } else { 18 })
    });
    let read = request.then(|| take(28));
    assert_eq!(at, payload.len(), "octets behind a Terminate");
    Terminated {
        numbers: (payload[0] >> 4, payload[0] & 0xf, payload[1]),
        segment_len,
        header,
        read,
    }
}
