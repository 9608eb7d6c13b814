//! Unwind tables as the kernel programs see them: searches in maps, and the cache of recently found rules.
//!
//! Owns: both searches. Each is a function with external linkage, which the verifier checks once, independent of the
//! number of frames. Does not: know the meaning of a rule.

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{
    BLOCK_SEARCH_STEPS, EXECUTABLE_SERIAL_SHIFT, Executable, MAPPING_SEARCH_STEPS, PAGE_SHIFT, Page,
    ROWS_PER_BLOCK, Rule, row, rule_kind,
};
use deepctx_walk::interleave::{Tables, Walk};

use super::Kernel;
use super::rule_cache::{CACHE_INDEX, CACHED_RULES, RuleCache};
use crate::maps::{EXECUTABLES, MAPPINGS, PAGES, PYTHON_LAYOUTS, RULE_CACHE, RULES, SHARDS};
use crate::words::copy;

/// Cache key of the stated address `svma` in `executable`: 24 bits of serial number above 40 bits of address. 0 if no
/// unique key exists.
#[inline(always)]
fn cache_key(executable: &Executable, svma: u64) -> u64 {
    let serial = u64::from(executable.flags >> EXECUTABLE_SERIAL_SHIFT);
    if svma >> 40 != 0 || serial == 0 { 0 } else { serial << 40 | svma }
}

/// Index slot of `key`: mixes in the upper bits, because functions are aligned.
#[inline(always)]
fn indexed_at(key: u64) -> usize {
    (key ^ key >> 11 ^ key >> 22) as usize & (CACHE_INDEX - 1)
}

impl Tables for Kernel {
    #[inline(always)]
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        as_result(find_mapping(walk, pc))
    }

    #[inline(always)]
    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        as_result(find_rule(walk, svma))
    }

    #[inline(always)]
    fn next_rule(&self, walk: &mut Walk, svma: u64) -> bool {
        let key = cache_key(&walk.executable, svma);
        // SAFETY: the cache belongs to the claimed slot; the index is masked to its length.
        let cached = unsafe { &(*self.rules).entries[walk.cursor as usize & (CACHED_RULES - 1)] };
        if key == 0 || cached.key != key {
            return false;
        }
        copy(&mut walk.rule, &cached.rule);
        true
    }

    #[inline(always)]
    fn put_back(&self, walk: &mut Walk) -> bool {
        super::displaced::put_back(walk)
    }

    #[inline(always)]
    fn rare_step(&self, walk: &mut Walk) -> Result<(), WalkEnd> {
        super::rare_step::step(walk)
    }

    #[inline(always)]
    fn find_layout(&self, walk: &mut Walk) -> bool {
        match PYTHON_LAYOUTS.get(walk.process.python.layout) {
            Some(layout) => {
                copy(&mut walk.layout, layout);
                true
            }
            None => false,
        }
    }
}

#[inline(always)]
fn as_result(end: u32) -> Result<(), WalkEnd> {
    match end {
        FOUND => Ok(()),
        n if n == WalkEnd::NoMapping as u32 => Err(WalkEnd::NoMapping),
        n if n == WalkEnd::NoTable as u32 => Err(WalkEnd::NoTable),
        n if n == WalkEnd::NoRow as u32 => Err(WalkEnd::NoRow),
        _ => Err(WalkEnd::TableCorrupt),
    }
}

const FOUND: u32 = 0;

/// Finds the mapping that holds `pc`: a binary search in the process's sorted run. Returns 0, or the [`WalkEnd`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_mapping(walk: *mut Walk, pc: u64) -> u32 {
    if walk.is_null() {
        return WalkEnd::TableCorrupt as u32;
    }
    // SAFETY: the caller passes the walk of a claimed slot.
    let walk = unsafe { &mut *walk };
    let base = walk.process.mappings_base;
    let (mut low, mut high) = (0u32, walk.process.mappings);
    // Invariant: mappings before `low` begin at or below pc, those from `high` on begin above it.
    for _ in 0..MAPPING_SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let Some(mapping) = MAPPINGS.get(base.wrapping_add(middle)) else {
            return WalkEnd::TableCorrupt as u32;
        };
        if mapping.begin <= pc {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return WalkEnd::NoMapping as u32;
    }
    let Some(mapping) = MAPPINGS.get(base.wrapping_add(low - 1)) else { return WalkEnd::TableCorrupt as u32 };
    if pc < mapping.begin || pc >= mapping.end {
        return WalkEnd::NoMapping as u32;
    }
    copy(&mut walk.mapping, mapping);
    let Some(executable) = EXECUTABLES.get(mapping.executable) else { return WalkEnd::TableCorrupt as u32 };
    copy(&mut walk.executable, executable);
    FOUND
}

/// Finds the rule for the stated address `svma` in the walk's executable. Returns 0, or the [`WalkEnd`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_rule(walk: *mut Walk, svma: u64) -> u32 {
    if walk.is_null() {
        return WalkEnd::TableCorrupt as u32;
    }
    // SAFETY: as above.
    let walk = unsafe { &mut *walk };
    let executable = &walk.executable;
    let key = cache_key(executable, svma);
    let Some(cache) = RULE_CACHE.get_ptr_mut(walk.slot as u32) else { return WalkEnd::TableCorrupt as u32 };
    // SAFETY: the cache of the claimed slot; every index is masked to the length of its array.
    let cache = unsafe { &mut *cache };
    let place = indexed_at(key);
    let entry = usize::from(cache.index[place]) & (CACHED_RULES - 1);
    if key != 0 && cache.entries[entry].key == key {
        copy(&mut walk.rule, &cache.entries[entry].rule);
        walk.cursor = entry as u64 + 1;
        return FOUND;
    }
    let rule = match look_up(executable, svma) {
        Ok(rule) => rule,
        Err(end) => return end as u32,
    };
    copy(&mut walk.rule, rule);
    if key != 0 {
        walk.cursor = keep(cache, key, place, rule) as u64 + 1;
    }
    FOUND
}

/// The rule of the last row at or below `svma`, from the executable's table.
#[inline(always)]
fn look_up(executable: &Executable, svma: u64) -> Result<&'static Rule, WalkEnd> {
    let page = (svma >> PAGE_SHIFT).wrapping_sub(u64::from(executable.first_page));
    if page >= u64::from(executable.pages) {
        return Err(WalkEnd::NoRow);
    }
    let page = PAGES.get(executable.pages_base.wrapping_add(page as u32)).ok_or(WalkEnd::TableCorrupt)?;
    if page.blocks == 0 {
        return Err(WalkEnd::NoRow);
    }
    let rule = u32::from(row::rule(last_row(page, svma)?));
    if rule >= executable.rules {
        return Err(WalkEnd::TableCorrupt);
    }
    let rule = RULES.get(executable.rules_base.wrapping_add(rule)).ok_or(WalkEnd::TableCorrupt)?;
    if rule.cfa == rule_kind::NONE { Err(WalkEnd::NoRow) } else { Ok(rule) }
}

/// The last row of a page with `pc_low` at or below `svma`: a binary search for its block, then one within the block.
#[inline(always)]
fn last_row(page: &Page, svma: u64) -> Result<u32, WalkEnd> {
    let shard = SHARDS.get(u32::from(page.shard)).ok_or(WalkEnd::NoTable)?;
    // Compares whole rows: `sought` has the largest rule number.
    let sought = row::pack(svma as u16, u16::MAX);
    let (mut low, mut high) = (0u32, u32::from(page.blocks));
    for _ in 0..BLOCK_SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let block = shard.get(page.first_block.wrapping_add(middle)).ok_or(WalkEnd::TableCorrupt)?;
        if block[0] <= sought {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return Err(WalkEnd::NoRow);
    }
    let block = shard.get(page.first_block.wrapping_add(low - 1)).ok_or(WalkEnd::TableCorrupt)?;
    // The last of the 16 rows that is not above `sought`; the first row never is.
    let mut at = 0;
    let mut step = ROWS_PER_BLOCK / 2;
    while step > 0 {
        if block[at + step] <= sought {
            at += step;
        }
        step /= 2;
    }
    Ok(block[at])
}

/// Stores a rule after the one stored last, wrapping around. Returns its entry.
#[inline(always)]
fn keep(cache: &mut RuleCache, key: u64, place: usize, rule: &Rule) -> usize {
    let entry = cache.written as usize & (CACHED_RULES - 1);
    cache.written += 1;
    cache.index[place] = entry as u16;
    let cached = &mut cache.entries[entry];
    cached.key = key;
    copy(&mut cached.rule, rule);
    entry
}
