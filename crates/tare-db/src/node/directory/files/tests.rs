use std::time::Duration;

use tare_store::Chunk;
use tare_store::io::OpId;

use super::*;

fn files(direct: bool) -> (tempfile::TempDir, ShardFiles) {
    let directory = tempfile::tempdir().unwrap();
    let files = ShardFiles::new(directory.path().into(), direct);
    (directory, files)
}

fn filled(byte: u8, length: usize) -> Chunk {
    let mut chunk = Chunk::new(length);
    chunk.take(length).fill(byte);
    chunk
}

/// Carries out an operation and returns its result and the bytes of the chunk.
fn run(files: &mut ShardFiles, file: FileId, kind: OpKind) -> (io::Result<usize>, Vec<u8>) {
    let done = files.carry_out(Op { id: OpId(0), file, kind });
    (done.result, done.chunk.map(|chunk| chunk.bytes().to_vec()).unwrap_or_default())
}

/// Waits until a file has at most one piece.
fn wait_until_freed(file: &File) {
    for _ in 0..6000 {
        if file.metadata().unwrap().len() <= freeing::PIECE_BYTES {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the file keeps its blocks");
}

#[test]
fn large_files_lose_their_name_and_then_their_blocks() {
    let (directory, mut files) = files(false);
    let size_bytes = 3 * freeing::PIECE_BYTES;
    let [linked, open, closed] = [0, 1, 2].map(FileId::Table);
    let [linked_file, open_file, closed_file] = [linked, open, closed].map(|file| {
        run(&mut files, file, OpKind::Create { size_bytes }).0.unwrap();
        run(&mut files, file, OpKind::Sync).0.unwrap();
        let file = File::options().write(true).open(files.folder.path(file)).unwrap();
        file.set_len(size_bytes).unwrap();
        file
    });
    files.open.remove(&closed);
    let snapshot = directory.path().join("snapshot");
    std::fs::hard_link(files.folder.path(linked), &snapshot).unwrap();
    for file in [linked, open, closed] {
        run(&mut files, file, OpKind::Remove).0.unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    wait_until_freed(&open_file);
    wait_until_freed(&closed_file);
    // It was the first one.
    assert_eq!(linked_file.metadata().unwrap().len(), size_bytes);
}

#[test]
fn file_operations_change_the_directory() {
    let probe = super::super::direct::probe(tempfile::tempdir().unwrap().path());
    for direct in [false, probe.works] {
        let (directory, mut files) = files(direct);
        let (draft, manifest) = (FileId::ManifestDraft, FileId::Manifest);
        let mut ok = |file, kind| {
            let (result, bytes) = run(&mut files, file, kind);
            (result.unwrap(), bytes)
        };
        ok(draft, OpKind::Create { size_bytes: 1 << 20 });
        let chunk = filled(7, 8192);
        assert_eq!(ok(draft, OpKind::Write { offset: 4096, chunk, sync: true }).0, 8192);
        ok(draft, OpKind::Sync);
        ok(draft, OpKind::Rename { to: manifest });
        let chunk = filled(0, 4096);
        let read = ok(manifest, OpKind::Read { offset: 8192, chunk });
        assert_eq!(read, (4096, vec![7; 4096]));
        ok(manifest, OpKind::Truncate { length: 10_000 });
        // A read returns only the bytes before the end of the file, even if that is not aligned.
        let chunk = filled(0, 8192);
        let (length, bytes) = ok(manifest, OpKind::Read { offset: 8192, chunk });
        assert_eq!((length, &bytes[..length]), (1808, &[7; 1808][..]));
        assert_eq!(files.list().unwrap(), [manifest]);
        assert_eq!(files.length(manifest).unwrap(), 10_000);
        let mut some = [0; 10];
        assert_eq!(files.read_at(manifest, 9_995, &mut some).unwrap(), 5);
        run(&mut files, manifest, OpKind::Remove).0.unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(run(&mut files, manifest, OpKind::Sync).0.is_err());
        let chunk = filled(0, 4096);
        let (result, bytes) = run(&mut files, manifest, OpKind::Read { offset: 0, chunk });
        assert_eq!((result.unwrap_err().kind(), bytes.len()), (io::ErrorKind::NotFound, 4096));
    }
}

#[test]
fn leftovers_are_replaced_and_unknown_files_ignored() {
    let (directory, mut files) = files(false);
    std::fs::write(directory.path().join("00000003.log"), b"left over").unwrap();
    std::fs::write(directory.path().join("notes.txt"), b"a stranger").unwrap();
    assert_eq!(files.list().unwrap(), [FileId::Log(3)]);
    run(&mut files, FileId::Log(3), OpKind::Create { size_bytes: 4096 }).0.unwrap();
    let mut bytes = [1; 16];
    assert_eq!(files.read_at(FileId::Log(3), 0, &mut bytes).unwrap(), 16);
    assert_eq!(bytes, [0; 16]);
}
