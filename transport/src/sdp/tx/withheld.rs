//! What was put and is not told of, because the program has more to say: MSG_MORE, TCP_CORK (tcp(7)). It goes with the next
//! that is sent without, when the program takes the cork off, and with whatever ends the fast leg. A reader that has waited for
//! 200 ms, as long as the kernel would keep it, takes it by itself (`preload::sockets::parked`), so that nothing here needs a clock.

use super::Tx;
use crate::doorbell;
use crate::provider::Provider;
use crate::sdp::Leg;

impl Tx {
    /// The program has no more to add.
    pub fn tell_withheld(&mut self, p: &impl Provider, fd: i32) {
        if self.withheld == 0 || self.leg != Leg::Fast || !p.enter() {
            return;
        }
        if self.post_all(p) && self.rings(p, doorbell::DATA) {
            self.send_bell(p, fd);
        }
        p.leave();
    }
}
