//! What the kernel alone takes for the same bytes over the same sockets: a server that answers each
//! request without reading more than it has to, and a client that sends the next request as soon as
//! it has an answer. Both are this program, started again, once with epoll and once with io_uring.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

use crate::rings;
use crate::side::Side;
use crate::{Cell, Result};

/// The first word of the arguments with which this program starts itself.
pub(crate) const WORD: &str = "kernel-alone";
const CONNECTIONS: usize = 64;

/// How the two sides wait, receive and send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Epoll,
    Uring,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "io_uring",
        }
    }
}

/// The bytes of a request and of its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) request: usize,
    pub(crate) answer: usize,
}

/// Runs both sides for a while; returns requests per second and the CPU time of each in µs.
pub(crate) fn measure(
    engine: Engine,
    bytes: Exchange,
    (server_cpu, client_cpu): (u32, u32),
    seconds: u64,
) -> Result<Cell> {
    let side = |cpu: u32, words: &[&str]| -> Result<Command> {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(std::env::current_exe()?);
        command.args([WORD, engine.name()]).args(words).stdout(Stdio::piped());
        Ok(command)
    };
    let (request, answer) = (bytes.request.to_string(), bytes.answer.to_string());
    let mut server = side(server_cpu, &["server", &request, &answer])?.spawn()?;
    let mut lines = BufReader::new(server.stdout.take().ok_or("no output")?).lines();
    let mut line =
        || -> Result<String> { Ok(lines.next().ok_or("a side of the kernel alone has failed")??) };
    let port = line()?;
    let client = side(client_cpu, &["client", &request, &answer, &port, &seconds.to_string()])?;
    let client = { client }.output()?;
    let served = figures(&line()?)?;
    server.wait()?;
    let [done, client_us, took_s] = figures(String::from_utf8(client.stdout)?.trim())?;
    Ok(Cell { per_s: done / took_s, server_us: served[1] / served[0], client_us: client_us / done })
}

fn figures(line: &str) -> Result<[f64; 3]> {
    let figures: Vec<f64> =
        line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    figures.try_into().map_err(|_| "a side of the kernel alone printed something else".into())
}

/// Runs one side; prints the port (a server), then operations, CPU time in µs and seconds.
pub(crate) fn side(words: &[String]) -> Result<()> {
    let [engine, role, request, answer, more @ ..] = words else {
        return Err("name an engine, a side and two lengths".into());
    };
    let (request, answer) = (request.parse()?, answer.parse()?);
    let mut side = match more {
        [port, seconds] if role == "client" => {
            let port: u16 = port.parse()?;
            let streams = (0..CONNECTIONS).map(|_| TcpStream::connect(("127.0.0.1", port)));
            let end = Some(Instant::now() + Duration::from_secs(seconds.parse()?));
            Side {
                streams: streams.collect::<std::io::Result<_>>()?,
                send: request,
                expect: answer,
                end,
            }
        }
        _ => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            println!("{}", listener.local_addr()?.port());
            let streams = listener.incoming().take(CONNECTIONS);
            Side {
                streams: streams.collect::<std::io::Result<_>>()?,
                send: answer,
                expect: request,
                end: None,
            }
        }
    };
    for stream in &side.streams {
        stream.set_nodelay(true)?;
    }
    let (began, cpu) = (Instant::now(), cpu_us());
    let done =
        if engine == Engine::Uring.name() { rings::run(&mut side)? } else { poll(&mut side)? };
    println!("{done} {} {}", cpu_us() - cpu, began.elapsed().as_secs_f64());
    Ok(())
}

/// The CPU time of this thread in µs.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Exchanges messages with epoll, read and write. Returns how many were received.
fn poll(side: &mut Side) -> Result<u64> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let message = vec![0; side.send];
    for (number, stream) in side.streams.iter_mut().enumerate() {
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&poll, &*stream, data, epoll::EventFlags::IN)?;
        if side.end.is_some() {
            stream.write_all(&message)?;
        }
    }
    let mut into = vec![0; side.expect + 1];
    let mut events = Vec::with_capacity(CONNECTIONS);
    let (mut done, mut open) = (0, side.streams.len());
    while open > 0 {
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        let over = side.is_over();
        for event in events.drain(..) {
            let stream = &mut side.streams[usize::try_from(event.data.u64())?];
            let received = match stream.read(&mut into) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                received => received?,
            };
            if received == side.expect {
                done += 1;
            } else if received > 0 {
                return Err("a message came in parts".into());
            }
            if received == 0 || over {
                epoll::delete(&poll, &*stream)?;
                open -= 1;
            } else {
                stream.write_all(&message)?;
            }
        }
    }
    Ok(done)
}
