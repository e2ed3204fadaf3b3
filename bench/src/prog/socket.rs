//! The sockets of the plain programs: on the loopback address unless another is named, with buffers of a given size where one is asked for, and
//! whole messages over them.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use crate::sys;

pub(super) fn listen(port: u16) -> io::Result<TcpListener> {
    listen_at((Ipv4Addr::LOCALHOST, port))
}

fn listen_at(place: (Ipv4Addr, u16)) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(place)?;
    // A server that loses its core for a moment must not drop connections: that would measure retransmission.
    sys::listen(&listener, 4096)?;
    Ok(listener)
}

pub(super) fn connect(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
}

/// How the socket of a measurement is set up.
#[derive(Clone, Copy, clap::Args)]
pub(super) struct Setup {
    #[arg(long)]
    port: u16,
    /// Where the server listens
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    address: Ipv4Addr,
    /// Ask for socket buffers of this many bytes (SO_SNDBUF and SO_RCVBUF); otherwise the kernel sizes them
    #[arg(long)]
    sockbuf: Option<usize>,
}

impl Setup {
    pub(super) fn listen(self) -> io::Result<TcpListener> {
        let listener = listen_at((self.address, self.port))?;
        // Accepted sockets inherit it, and the window is negotiated with it.
        self.size(&listener)?;
        Ok(listener)
    }

    pub(super) fn connect(self) -> io::Result<TcpStream> {
        let socket = sys::tcp_socket()?;
        self.size(&socket)?;
        sys::connect(&socket, (self.address, self.port))?;
        Ok(socket.into())
    }

    fn size(self, socket: &impl std::os::fd::AsRawFd) -> io::Result<()> {
        self.sockbuf
            .map_or(Ok(()), |bytes| sys::set_buffers(socket, bytes))
    }
}

/// Whole messages over one socket. Sending blocks; receiving blocks or polls with MSG_DONTWAIT.
pub(super) struct Messages {
    socket: TcpStream,
    flags: i32,
}

impl Messages {
    pub(super) fn new(socket: TcpStream, busy: bool) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            flags: if busy { libc::MSG_DONTWAIT } else { 0 },
        })
    }

    /// As most programs have it: the kernel may keep back what is little (TCP_NODELAY is off).
    pub(super) fn with_nagle(self, wanted: bool) -> io::Result<Self> {
        self.socket.set_nodelay(!wanted)?;
        Ok(self)
    }

    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < message.len() {
            done += sys::send(&self.socket, &message[done..], 0)?;
        }
        Ok(())
    }

    /// False at end of file.
    pub(super) fn receive(&self, message: &mut [u8]) -> io::Result<bool> {
        let mut done = 0;
        while done < message.len() {
            match self.receive_some(&mut message[done..], 0)? {
                0 => return Ok(false),
                n => done += n,
            }
        }
        Ok(true)
    }

    /// One recv that has an answer, with these flags besides.
    pub(super) fn receive_some(&self, bytes: &mut [u8], flags: i32) -> io::Result<usize> {
        loop {
            match sys::recv(&self.socket, bytes, self.flags | flags) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                result => return result,
            }
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// What the kernel says about send and receive buffer.
    pub(super) fn buffers(&self) -> io::Result<[i32; 2]> {
        sys::buffers(&self.socket)
    }
}
