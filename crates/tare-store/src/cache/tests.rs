use std::rc::Rc;

use super::*;
use proptest::prelude::*;
use tare_std::rng::Rng;

fn at(page: u32) -> BlockAt {
    BlockAt { file: 1, page, pages: 1 }
}

fn block(length: usize) -> Rc<Block> {
    Rc::new(Block::for_test(length))
}

/// Requests a block and inserts it if it is missing. Returns whether it was there.
fn request(cache: &mut Cache, page: u32, length: usize) -> bool {
    let found = cache.get(at(page)).is_some();
    if !found {
        cache.insert(at(page), block(length));
    }
    found
}

const LENGTH: usize = 4096 - OVERHEAD_BYTES;

/// Room for 1,000 blocks of [`LENGTH`].
fn cache() -> Cache {
    Cache::new(1000 * 4096)
}

#[test]
fn scan_does_not_evict_blocks_in_use() {
    let mut cache = cache();
    for _ in 0..4 {
        (0..500).for_each(|page| {
            request(&mut cache, page, LENGTH);
        });
    }
    for page in 1000..20_000 {
        request(&mut cache, page, LENGTH);
        // A scan may request a block twice.
        request(&mut cache, page, LENGTH);
    }
    let kept = (0..500).filter(|&page| cache.contains(at(page))).count();
    assert!(kept > 480, "{kept} of 500");
    assert_eq!(cache.statistics().bytes, 1000 * 4096);
}

#[test]
fn skewed_use_hits_more_often_than_fifo() {
    let mut cache = cache();
    let mut rng = Rng::new(3);
    let (mut hits, mut fifo, mut fifo_hits) = (0, VecDeque::new(), 0);
    for _ in 0..60_000 {
        let spread = rng.next_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10,000")]
        let page = (spread * spread * spread * spread * 10_000.0) as u32;
        hits += u32::from(request(&mut cache, page, LENGTH));
        if fifo.contains(&page) {
            fifo_hits += 1;
        } else {
            fifo.push_back(page);
            if fifo.len() > 1000 {
                fifo.pop_front();
            }
        }
    }
    assert!(hits > fifo_hits + fifo_hits / 20, "{hits} hits, first in first out {fifo_hits}");
    let statistics = cache.statistics();
    assert_eq!(statistics.hits, u64::from(hits));
    assert_eq!(statistics.hits + statistics.misses, 60_000);
}

#[test]
fn held_blocks_stay_and_forgotten_ones_go() {
    let mut cache = cache();
    cache.insert(at(7), block(LENGTH));
    let held = Rc::clone(cache.get(at(7)).unwrap());
    for page in 100..5000 {
        request(&mut cache, page, LENGTH);
    }
    assert!(cache.contains(at(7)));
    drop(held);
    for page in 100..9000 {
        request(&mut cache, page, LENGTH);
    }
    assert!(!cache.contains(at(7)));
    let other = BlockAt { file: 2, ..at(7) };
    cache.insert(other, block(LENGTH));
    cache.forget(1);
    assert_eq!(cache.statistics().blocks, 1);
    assert_eq!(cache.statistics().bytes, 4096);
    assert!(cache.contains(other));
    cache.set_limit(0);
    assert_eq!(cache.statistics().bytes, 0);
    cache.insert(other, block(LENGTH));
    assert!(!cache.contains(other), "a block larger than the cache is not taken");
}

#[derive(Clone, Debug)]
enum Action {
    Ask(u32, usize),
    Hold(u32),
    Release,
    Forget(u64),
    Limit(usize),
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (0u32..60, 0usize..3000).prop_map(|(page, length)| Action::Ask(page, length)),
        2 => (0u32..60).prop_map(Action::Hold),
        1 => Just(Action::Release),
        1 => (1u64..3).prop_map(Action::Forget),
        1 => (0usize..60_000).prop_map(Action::Limit),
    ]
}

proptest! {
    #[test]
    fn cache_bytes_are_exact_and_within_the_limit(
        actions in prop::collection::vec(actions(), 1..200),
    ) {
        let mut cache = Cache::new(30_000);
        let mut held: Vec<(BlockAt, Rc<Block>)> = Vec::new();
        let mut known = std::collections::BTreeMap::new();
        for action in actions {
            match action {
                Action::Ask(page, length) => {
                    let place = BlockAt { file: u64::from(page % 2) + 1, page, pages: 1 };
                    match cache.get(place) {
                        Some(found) => prop_assert_eq!(found.bytes(), known[&place]),
                        None => {
                            cache.insert(place, block(length));
                            known.insert(place, length);
                        }
                    }
                }
                Action::Hold(page) => {
                    let place = BlockAt { file: u64::from(page % 2) + 1, page, pages: 1 };
                    held.extend(cache.get(place).cloned().map(|block| (place, block)));
                }
                Action::Release => {
                    held.clear();
                    // Held blocks beyond the limit are evicted with the next block, or now.
                    cache.set_limit(cache.statistics().limit_bytes);
                }
                Action::Forget(file) => {
                    cache.forget(file);
                    held.retain(|(place, _)| place.file != file);
                    known.retain(|place, _| place.file != file);
                }
                Action::Limit(bytes) => cache.set_limit(bytes),
            }
            let statistics = cache.statistics();
            let here: Vec<_> = known.iter().filter(|(place, _)| cache.contains(**place)).collect();
            let bytes: usize = here.iter().map(|(_, length)| *length + OVERHEAD_BYTES).sum();
            prop_assert_eq!(statistics.bytes, bytes);
            prop_assert_eq!(statistics.blocks, here.len());
            prop_assert!(held.iter().all(|(place, _)| cache.contains(*place)));
            if held.is_empty() {
                prop_assert!(statistics.bytes <= statistics.limit_bytes);
            }
        }
    }
}
