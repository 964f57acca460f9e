//! How rows of tensors travel between workers and server shards: a small head (postcard) that names tensors
//! and lengths, then the numbers as the codec writes them. Every length is checked before it is believed.

use serde::{Deserialize, Serialize};
use starlings_codec::{Codec, Into as Put};
use starlings_core::{Block, Body, Kind, Rows, Update, Values};

/// Blocks in one message at most.
const BLOCKS_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
struct Head<M> {
    meta: M,
    blocks: Vec<BlockHead>,
}

#[derive(Serialize, Deserialize)]
struct BlockHead {
    name: String,
    kind: Kind,
    total: u32,
    width: u32,
    /// Consecutive rows need no row numbers: the first and one past the last.
    consecutive: Option<(u32, u32)>,
    bytes: u32,
}

/// Writes `meta` and blocks of rows.
pub(crate) fn write<M: Serialize>(meta: M, blocks: &[Block], codec: &dyn Codec) -> Vec<u8> {
    let mut body = Vec::new();
    let mut heads = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Body::Rows(rows) = &block.body else { panic!("servers speak of rows only") };
        let before = body.len();
        let consecutive = consecutive(&rows.index);
        match consecutive {
            Some(_) => codec.encode(&rows.values, 0, rows.values.len(), &mut body),
            None => codec.encode_rows(rows, &mut body),
        }
        heads.push(BlockHead {
            name: block.name.clone(),
            kind: rows.values.kind(),
            total: rows.total,
            width: rows.width,
            consecutive,
            bytes: (body.len() - before) as u32,
        });
    }
    let head = postcard::to_stdvec(&Head { meta, blocks: heads }).expect("plain data serialises");
    let mut message = Vec::with_capacity(4 + head.len() + body.len());
    message.extend_from_slice(&(head.len() as u32).to_le_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(&body);
    message
}

/// Reads what [`write`] wrote, or says what is wrong with the bytes.
pub(crate) fn read<M: for<'a> Deserialize<'a>>(
    bytes: &[u8],
    codec: &dyn Codec,
) -> Result<(M, Update), &'static str> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or("a message without a head")?;
    let len = u32::from_le_bytes(*len) as usize;
    let (head, mut body) = rest.split_at_checked(len).ok_or("a head longer than its message")?;
    let head: Head<M> = postcard::from_bytes(head).map_err(|_| "a head that cannot be read")?;
    if head.blocks.len() > BLOCKS_MAX {
        return Err("too many blocks");
    }
    let mut update = Update::default();
    for block in head.blocks {
        let (mine, rest) =
            body.split_at_checked(block.bytes as usize).ok_or("a block longer than its message")?;
        let rows = read_rows(&block, mine, codec)?;
        update.blocks.push(Block { name: block.name, body: Body::Rows(rows) });
        body = rest;
    }
    if body.is_empty() { Ok((head.meta, update)) } else { Err("bytes after the last block") }
}

fn read_rows(head: &BlockHead, bytes: &[u8], codec: &dyn Codec) -> Result<Rows, &'static str> {
    let like = Rows::none(head.kind, head.total, head.width);
    let Some((from, to)) = head.consecutive else {
        return codec.decode_rows(bytes, &like).map_err(|malformed| malformed.0);
    };
    if from > to || to > head.total {
        return Err("rows outside their table");
    }
    if head.width == 0 {
        return Err("rows without numbers");
    }
    let len = (to - from) as usize * head.width as usize;
    // No codec packs more than 64 numbers into a byte, so this bounds memory by bytes received.
    if len > bytes.len().saturating_mul(64) {
        return Err("more numbers than the bytes can hold");
    }
    let mut values = Values::zeros(head.kind, len);
    codec.decode(bytes, &mut values, 0..len, Put::Put).map_err(|malformed| malformed.0)?;
    Ok(Rows { index: (from..to).collect(), values, ..like })
}

fn consecutive(index: &[u32]) -> Option<(u32, u32)> {
    let (&first, &last) = (index.first()?, index.last()?);
    ((last - first) as usize + 1 == index.len()).then_some((first, last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(total: u32, width: u32, consecutive: (u32, u32)) -> Vec<u8> {
        let (name, kind, consecutive) = ("table".to_string(), Kind::F64, Some(consecutive));
        let block = BlockHead { name, kind, total, width, consecutive, bytes: 8 };
        let head = postcard::to_stdvec(&Head { meta: 7u64, blocks: vec![block] }).unwrap();
        [&(head.len() as u32).to_le_bytes()[..], &head, &1.5f64.to_le_bytes()].concat()
    }

    #[test]
    fn rows_come_back_and_lies_about_their_number_take_no_memory() {
        let codec = crate::choices::raw();
        let (meta, update) = read::<u64>(&message(9, 1, (3, 4)), &*codec).unwrap();
        let Body::Rows(rows) = &update.blocks[0].body else { panic!("servers speak of rows only") };
        assert_eq!((meta, &rows.index[..], rows.values.as_f64()), (7, &[3][..], Some(&[1.5][..])));
        for lie in [
            message(u32::MAX, 0, (0, u32::MAX)),
            message(u32::MAX, 1, (0, u32::MAX)),
            message(u32::MAX, u32::MAX, (0, u32::MAX)),
            message(9, 1, (4, 3)),
            message(9, 1, (9, 10)),
        ] {
            assert!(read::<u64>(&lie, &*codec).is_err());
        }
        let whole = message(9, 1, (3, 4));
        for cut in 0..whole.len() {
            assert!(read::<u64>(&whole[..cut], &*codec).is_err(), "cut at {cut}");
        }
    }
}
