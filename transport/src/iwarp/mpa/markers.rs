//! Where the next marker of a direction stands (RFC 5044 section 4.3): the first one right before the first FPDU, and then
//! one at every 512th octet of the stream, markers counted. Both ends count alone, so nothing here is sent.

/// Octets from the beginning of one marker to the beginning of the next.
pub(super) const SPACING: usize = 512;
/// Octets of a marker.
pub(super) const MARKER: usize = 4;
/// Octets of FPDUs between two markers.
pub(super) const BETWEEN: usize = SPACING - MARKER;

/// The markers of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Markers {
    /// Octets of FPDUs before the next marker, at most 508; 0: the next octet is a marker's. `None`: no markers.
    until: Option<usize>,
}

impl Markers {
    /// A direction without markers.
    pub const OFF: Self = Self { until: None };
    /// A direction with markers, before its first FPDU.
    pub const ON: Self = Self { until: Some(0) };

    /// As the receiver wants it, before the first FPDU.
    #[must_use]
    pub const fn wanted(yes: bool) -> Self {
        if yes { Self::ON } else { Self::OFF }
    }

    /// A direction with markers that goes on at an octet of the stream, counted from the first octet of the first marker. For
    /// FPDUs taken from the middle of a stream.
    ///
    /// The position must lie between FPDUs, and not inside a marker.
    #[must_use]
    pub const fn at(position: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "less than 512")]
        let past = (position % SPACING as u64) as usize;
        let until = if past == 0 { 0 } else { SPACING - past };
        Self { until: Some(until) }
    }

    /// Whether there are any.
    #[must_use]
    pub const fn any(self) -> bool {
        self.until.is_some()
    }

    /// Whether a marker is the next octet of the stream.
    #[must_use]
    pub const fn due(self) -> bool {
        matches!(self.until, Some(0))
    }

    /// Octets of FPDUs before the next marker.
    #[must_use]
    pub(super) const fn until(self) -> usize {
        match self.until {
            Some(until) => until,
            None => usize::MAX,
        }
    }

    /// A marker has been written or read.
    pub(super) const fn passed_marker(&mut self) {
        if self.until.is_some() {
            self.until = Some(BETWEEN);
        }
    }

    /// `octets` of an FPDU have been written or read, at most [`until`](Self::until).
    pub(super) const fn passed(&mut self, octets: usize) {
        if let Some(until) = self.until {
            self.until = Some(until.saturating_sub(octets));
        }
    }

    /// How many markers stand before or among the next `octets` of FPDUs.
    #[must_use]
    pub const fn among(self, octets: usize) -> usize {
        match self.until {
            Some(until) if octets > until => (octets - until).div_ceil(BETWEEN),
            _ => 0,
        }
    }

    /// What `octets` of FPDUs come to in the stream.
    #[must_use]
    pub const fn with(self, octets: usize) -> usize {
        octets + MARKER * self.among(octets)
    }

    /// Where things stand `octets` of FPDUs later.
    #[must_use]
    pub(super) const fn after(self, octets: usize) -> Self {
        let until = match self.until {
            Some(until) if octets > until => Some(until + self.among(octets) * BETWEEN - octets),
            Some(until) => Some(until - octets),
            None => None,
        };
        Self { until }
    }
}

#[cfg(test)]
mod tests {
    use super::Markers;

    #[test]
    fn counted_octet_by_octet() {
        for start in (0..1024)
            .step_by(4)
            .filter(|start| start % 512 != 0 || *start == 0)
        {
            let (mut position, mut count) = (start, 0);
            let markers = Markers::at(start as u64);
            for octets in 0..2200 {
                assert_eq!(markers.among(octets), count, "{octets} from {start}");
                assert_eq!(markers.with(octets), position - start);
                let now = markers.after(octets);
                assert_eq!(now, Markers::at(position as u64), "{octets} from {start}");
                if position % 512 == 0 {
                    position += 4;
                    count += 1;
                }
                position += 1;
            }
        }
    }
}
