//! Iterates over the fields of a protobuf message without interpreting them.
//!
//! Owns: [`fields`]. Because: a trace of a gigabyte is read packet by packet, and a packet of a kind that is not read
//! must be seen to be one. Does not: know a message.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'b> {
    /// A number.
    Number(u64),
    /// Bytes: a text or a message.
    Bytes(&'b [u8]),
    /// 4 or 8 bytes.
    Fixed,
}

/// The fields of a message, by number. Ends with an error at invalid bytes.
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Field<'_>), MalformedField>> {
    let mut rest = bytes;
    let mut is_broken = false;
    std::iter::from_fn(move || {
        if rest.is_empty() || is_broken {
            return None;
        }
        let field = next(&mut rest);
        is_broken = field.is_none();
        Some(field.ok_or(MalformedField))
    })
}

/// Bytes that are not a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedField;

fn next<'b>(rest: &mut &'b [u8]) -> Option<(u32, Field<'b>)> {
    let key = varint(rest)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    let field = match key & 7 {
        0 => Field::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Field::Fixed)?,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Field::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Field::Fixed)?,
        _ => return None,
    };
    Some((number, field))
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let end = rest.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let value = rest[..=end].iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    *rest = &rest[end + 1..];
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_at_what_is_none() {
        let check = |bytes: &[u8], expect: &[Result<(u32, Field<'_>), MalformedField>]| {
            assert_eq!(fields(bytes).collect::<Vec<_>>(), expect, "{bytes:?}");
        };
        check(&[0x08, 0x96, 0x01], &[Ok((1, Field::Number(150)))]);
        check(&[0x12, 2, b'a', b'b'], &[Ok((2, Field::Bytes(b"ab")))]);
        check(&[0x0d, 1, 2, 3, 4, 0x08, 1], &[Ok((1, Field::Fixed)), Ok((1, Field::Number(1)))]);
        check(&[0x08, 1, 0x12, 9, b'a'], &[Ok((1, Field::Number(1))), Err(MalformedField)]);
        check(&[0x0b], &[Err(MalformedField)]);
        check(&[0x80; 11], &[Err(MalformedField)]);
    }
}
