//! Where a merge is cut in two.
//!
//! What is known without reading anything is where the partitions of its runs begin, and what each takes. Laid side by side in the order of these keys
//! they say, but for a partition of each strand, how much lies below a key. The cut is the first key of the one that leaves the two parts most alike. It is a
//! key, not a version: whatever has that key, and all versions of it, lies at or above the cut.

/// The key to cut at: what lies below it, and what does not, are about alike, and no less than `least_bytes`. None if there is none. `parts` are pieces of the runs:
/// the first key of each and its bytes, in any order.
pub(crate) fn split_key<'a>(parts: &mut [(&'a [u8], u64)], least_bytes: u64) -> Option<&'a [u8]> {
    parts.sort_unstable_by_key(|(key, _)| *key);
    let all: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let mut best: Option<(u64, &'a [u8])> = None;
    let mut below = 0;
    for pair in parts.windows(2) {
        below += pair[0].1;
        let (key, apart) = (pair[1].0, below.abs_diff(all - below));
        // Pieces that begin alike stay together.
        if pair[0].0 < key && below.min(all - below) >= least_bytes && best.is_none_or(|(least, _)| apart < least) {
            best = Some((apart, key));
        }
    }
    best.map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `letter:bytes` of each piece; drawn in order, with `|` where it is cut.
    fn drawn(pieces: &str, least_bytes: u64) -> String {
        let piece = |word: &'static str| {
            let (key, bytes) = word.split_once(':').expect("a letter and bytes");
            (key.as_bytes(), bytes.parse::<u64>().expect("a number"))
        };
        let mut parts: Vec<_> = pieces.to_owned().leak().split(' ').map(piece).collect();
        let cut = split_key(&mut parts, least_bytes);
        let words = parts.iter().enumerate().map(|(i, (key, bytes))| {
            let begins = Some(*key) == cut && (i == 0 || parts[i - 1].0 < *key);
            format!("{}{}:{bytes}", if begins { "| " } else { "" }, char::from(key[0]))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_parts_are_about_alike() {
        assert_eq!(drawn("a:10 c:10 e:10 g:10 a:5 f:5", 10), "a:10 a:5 c:10 | e:10 f:5 g:10");
        assert_eq!(drawn("z:10 a:10", 10), "a:10 | z:10");
        assert_eq!(drawn("a:90 c:10 e:10", 10), "a:90 | c:10 e:10");
        assert_eq!(drawn("a:1 c:1 e:98", 1), "a:1 c:1 | e:98");
    }

    #[test]
    fn small_parts_are_not_worth_it() {
        assert_eq!(drawn("a:9 c:20", 10), "a:9 c:20");
        assert_eq!(drawn("a:10 c:9 e:10", 10), "a:10 | c:9 e:10", "of two that are as good the first");
        assert_eq!(drawn("a:100", 10), "a:100");
        assert_eq!(split_key(&mut [], 0), None);
    }

    #[test]
    fn what_begins_alike_stays_together() {
        assert_eq!(drawn("k:10 k:10 k:10", 10), "k:10 k:10 k:10");
        assert_eq!(drawn("a:10 k:10 k:10 k:10", 10), "a:10 | k:10 k:10 k:10");
    }
}
