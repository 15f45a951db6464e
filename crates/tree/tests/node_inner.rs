//! Inner nodes against sorted vectors.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use trefoil_tree::node::Inner;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// Keys that share prefixes, differ past the head, and are prefixes of each other.
    fn key(&mut self) -> Vec<u8> {
        let stem: &[u8] = [&b""[..], b"stem/", b"stem/longer/", &[0, 0, 0, 0]][self.below(4)];
        let tail = self.below(4);
        stem.iter().copied().chain((0..tail).map(|_| self.below(3) as u8)).collect()
    }
}

/// Lower fences of the children, in order, and the children.
type Model = Vec<(Vec<u8>, u32)>;

fn compare(node: &Inner<u32>, model: &Model, hi: Option<&[u8]>, numbers: &mut Numbers) {
    assert_eq!(node.children(), model.iter().map(|m| m.1).collect::<Vec<_>>());
    assert_eq!((node.lo(), node.hi()), (&model[0].0[..], hi));
    for (i, (lo, _)) in model.iter().enumerate() {
        let above = model.get(i + 1).map(|m| m.0.clone()).or(hi.map(<[u8]>::to_vec));
        assert_eq!(node.fence_of(i), (lo.clone(), above));
    }
    for _ in 0..20 {
        let key = numbers.key();
        let routed = model.iter().rposition(|m| m.0 <= key).unwrap_or(0);
        assert_eq!(node.child_for(&key), routed, "{key:?} in {model:?}");
        for (i, (lo, _)) in model.iter().enumerate().filter(|(_, m)| m.0 <= key) {
            let above = model.get(i + 1).map(|m| &m.0[..]).or(hi);
            let is_in = above.is_none_or(|above| key[..] < *above);
            assert_eq!(node.is_in(i, &key), is_in, "{key:?} in child {i} from {lo:?} of {model:?}");
        }
        let before = model.iter().rposition(|m| m.0 < key).unwrap_or(0);
        assert_eq!(node.child_before(&key), before, "before {key:?} in {model:?}");
    }
}

#[test]
fn random_changes_agree_with_sorted_vectors() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut node = Inner::single(0u32);
        let mut model: Model = vec![(Vec::new(), 0)];
        let mut hi: Option<Vec<u8>> = None;
        for step in 1..120 {
            match numbers.below(10) {
                0..=6 => {
                    let key = numbers.key();
                    let inside = model[0].0 < key && hi.as_ref().is_none_or(|hi| key < *hi);
                    if inside && model.iter().all(|m| m.0 != key) {
                        let i = node.child_for(&key);
                        node = node.with_split(i, &key, step);
                        model.insert(i + 1, (key, step));
                    }
                }
                7 => {
                    let start = numbers.below(model.len());
                    let end = (start + 1 + numbers.below(3)).min(model.len());
                    node = node.with_folded(start..end, step);
                    model[start].1 = step;
                    model.drain(start + 1..end);
                }
                8 if model.len() >= 2 => {
                    let (left, separator, right) = node.split(numbers.below(2) == 0);
                    let cut = left.len();
                    assert_eq!(separator, model[cut].0);
                    compare(&left, &model[..cut].to_vec(), Some(&separator), &mut numbers);
                    compare(&right, &model[cut..].to_vec(), hi.as_deref(), &mut numbers);
                    assert!(left.can_merge(&right, 1 << 20));
                    node = left.merged(&right);
                    if numbers.below(4) == 0 {
                        // Go on with one half.
                        model.truncate(cut);
                        (node, hi) = (left, Some(separator));
                    }
                }
                _ => {
                    node = node.map(|_, child| child + 1);
                    model.iter_mut().for_each(|m| m.1 += 1);
                }
            }
            compare(&node, &model, hi.as_deref(), &mut numbers);
        }
    }
}

#[test]
fn a_node_fills_and_splits_by_bytes() {
    let mut node = Inner::single(0u32);
    let mut n = 0u32;
    while !node.is_overfull(16 * 1024) {
        n += 1;
        let last = node.len() - 1;
        node = node.with_split(last, format!("separator/{n:08}").as_bytes(), n);
    }
    assert!((400..800).contains(&node.len()), "{} children", node.len());
    let (left, _, right) = node.split(false);
    assert!(left.len().abs_diff(right.len()) <= 2, "{} and {}", left.len(), right.len());
    let (left, _, right) = node.split(true);
    assert!((8..10).contains(&(left.len() * 10 / node.len())), "{} and {}", left.len(), right.len());
    assert!(!left.is_overfull(16 * 1024));
    assert!(!left.can_merge(&right, 16 * 1024), "they just filled more than a node");
    assert!(node.bytes() < 32 * 1024);
}

#[test]
fn separators_out_of_order_are_refused() {
    let children = vec![1, 2, 3];
    assert!(Inner::new(b"", None, &["b", "c"], children.clone()).is_ok());
    for wrong in [["c", "b"], ["b", "b"], ["", "b"]] {
        assert!(Inner::new(b"", None, &wrong, children.clone()).is_err());
    }
    assert!(Inner::new(b"", Some(b"c"), &["b", "c"], children.clone()).is_err(), "at the upper fence");
    assert!(Inner::new(b"b", None, &["b", "c"], children.clone()).is_err(), "at the lower fence");
    assert!(Inner::new(b"", None, &["b"], children).is_err(), "too few");
    assert!(Inner::<u32>::new(b"x", Some(b"a"), &[""; 0], vec![1]).is_err(), "fences out of order");
}
