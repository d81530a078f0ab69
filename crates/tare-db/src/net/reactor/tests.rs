use std::io::Read;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use tare_store::chunk::Chunk;
use tare_store::{Completion, FileId, Op, OpId, OpKind};

use super::*;
use crate::node::clock::Clock;
use crate::node::directory::{Directory, ShardFiles};

/// A test fails after this time.
const PATIENCE_NS: u64 = 60_000_000_000;

/// An engine with a shard's files.
struct Host {
    _directory: tempfile::TempDir,
    files: ShardFiles,
    engine: Engine,
    ended: Vec<Completion>,
}

impl Host {
    fn new(choice: IoChoice) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let files = Directory::open(directory.path()).unwrap().files(0).unwrap();
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let engine = if choice == IoChoice::Uring { "uring" } else { "epoll" };
        match Engine::new(choice, Arc::new(wakeup)) {
            Ok((engine, _)) => {
                Some(Self { _directory: directory, files, engine, ended: Vec::new() })
            }
            Err(why) => {
                tare_testkit::skip(
                    "files on io_uring",
                    tare_testkit::Reason::no_engine(engine, &why.to_string()),
                );
                None
            }
        }
    }

    fn begin(&mut self, id: u64, file: FileId, kind: OpKind) {
        match self.files.work(Op { id: OpId(id), file, kind }) {
            Ok(work) => {
                if let Some(done) = self.engine.file(work) {
                    self.ended.push(self.files.done(done));
                }
            }
            Err(completion) => self.ended.push(completion),
        }
    }

    /// Waits until so many operations have ended, and returns them by id.
    fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut events = Vec::new();
        let clock = Clock::new();
        while self.ended.len() < count {
            assert!(clock.now_ns() < PATIENCE_NS, "operations do not end");
            self.engine.poll(Wait::Sleep(Duration::from_secs(1)), &mut events).unwrap();
            for event in events.drain(..) {
                if let Event::File(done) = event {
                    self.ended.push(self.files.done(done));
                }
            }
        }
        self.ended.sort_by_key(|completion| completion.id);
        std::mem::take(&mut self.ended)
    }

    fn run(&mut self, file: FileId, kind: OpKind) -> Completion {
        self.begin(0, file, kind);
        self.wait(1).pop().unwrap()
    }
}

fn each_engine(test: impl Fn(Host)) {
    for choice in [IoChoice::Uring, IoChoice::Epoll] {
        Host::new(choice).into_iter().for_each(&test);
    }
}

fn filled(byte: u8, length: usize) -> Chunk {
    let mut chunk = Chunk::new(length);
    chunk.take(length).fill(byte);
    chunk
}

const TABLE: FileId = FileId::Table(7);

#[test]
fn files_are_created_written_read_and_removed() {
    each_engine(|mut host| {
        host.run(TABLE, OpKind::Create { size_bytes: 1 << 20 }).result.unwrap();
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3)] {
            let chunk = filled(byte, 4096);
            let done = host.run(TABLE, OpKind::Write { offset, chunk, sync: byte == 2 });
            assert_eq!(done.result.unwrap(), 4096);
            assert_eq!(done.chunk.unwrap().len(), 4096, "the chunk comes back");
        }
        host.run(TABLE, OpKind::Sync).result.unwrap();
        host.run(TABLE, OpKind::Rename { to: FileId::Table(8) }).result.unwrap();
        let done =
            host.run(FileId::Table(8), OpKind::Read { offset: 4096, chunk: filled(0, 8192) });
        assert_eq!(done.result.unwrap(), 8192);
        let chunk = done.chunk.unwrap();
        assert!(chunk.bytes()[..4096].iter().all(|&byte| byte == 2));
        assert!(chunk.bytes()[4096..].iter().all(|&byte| byte == 3));
        host.run(FileId::Table(8), OpKind::Remove).result.unwrap();
        let done = host.run(FileId::Table(8), OpKind::Read { offset: 0, chunk: filled(0, 4096) });
        assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(done.chunk.is_some(), "the chunk comes back from a failure too");
    });
}

#[test]
fn read_across_the_end_of_a_file_is_short() {
    each_engine(|mut host| {
        host.run(TABLE, OpKind::Create { size_bytes: 0 }).result.unwrap();
        host.run(TABLE, OpKind::Write { offset: 0, chunk: filled(1, 8192), sync: false });
        host.run(TABLE, OpKind::Truncate { length: 5000 }).result.unwrap();
        let mut read = |offset| host.run(TABLE, OpKind::Read { offset, chunk: filled(0, 16384) });
        assert_eq!(read(0).result.unwrap(), 5000);
        assert_eq!(read(4096).result.unwrap(), 904);
        assert_eq!(read(8192).result.unwrap(), 0);
    });
}

#[test]
fn all_accepted_file_operations_end() {
    each_engine(|mut host| {
        host.run(TABLE, OpKind::Create { size_bytes: 4 << 20 }).result.unwrap();
        host.run(TABLE, OpKind::Write { offset: 0, chunk: filled(9, 1 << 20), sync: true });
        let mut begun: u8 = 0;
        while host.engine.has_file_room() {
            let offset = u64::from(begun) * 8192;
            let kind = match begun % 4 {
                0 => OpKind::Write {
                    offset,
                    chunk: filled(begun, 4096),
                    sync: begun.is_multiple_of(8),
                },
                1 => OpKind::Sync,
                _ => OpKind::Read { offset, chunk: filled(0, 4096) },
            };
            host.begin(u64::from(begun), TABLE, kind);
            begun += 1;
        }
        assert_eq!(usize::from(begun), FILE_OPS_MAX);
        let ended = host.wait(FILE_OPS_MAX);
        for (id, done) in (0..).zip(&ended) {
            assert_eq!(done.id, OpId(id));
            let expect = if id % 4 == 1 { 0 } else { 4096 };
            assert_eq!(done.result.as_ref().unwrap(), &expect, "{id}");
            if id % 4 > 1 {
                assert_eq!(done.chunk.as_ref().unwrap().bytes(), [9; 4096], "{id}");
            }
        }
        assert!(host.engine.has_file_room());
    });
}

#[test]
fn engine_is_sending_until_the_kernel_has_every_byte() {
    each_engine(|mut host| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let id = host.engine.add(ours.into()).unwrap();
        assert!(!host.engine.is_sending(id));
        // More than the socket takes at a time.
        let bytes = vec![7; 4 << 20];
        assert!(host.engine.send(id, &mut bytes.clone()));
        assert!(host.engine.is_sending(id));
        let reader = std::thread::Builder::new().spawn(move || {
            let mut received = vec![0; 4 << 20];
            (&theirs).read_exact(&mut received).map(|()| received)
        });
        let (mut events, mut sent) = (Vec::new(), false);
        let clock = Clock::new();
        while !sent && clock.now_ns() < PATIENCE_NS {
            host.engine.poll(Wait::Sleep(Duration::from_secs(1)), &mut events).unwrap();
            sent = events.drain(..).any(|event| matches!(event, Event::Sent(of) if of == id));
        }
        assert!(sent && !host.engine.is_sending(id));
        host.engine.close(id);
        assert!(reader.unwrap().join().unwrap().unwrap() == bytes);
    });
}
