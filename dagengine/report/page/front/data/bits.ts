// Sets of cases as bits: a filter is an AND, a count is a population count.

export class Bits {
  readonly words: Uint32Array;

  constructor(readonly size: number) {
    this.words = new Uint32Array(Math.ceil(size / 32));
  }

  static all(size: number): Bits {
    const all = new Bits(size);
    all.words.fill(0xffffffff);
    if (size % 32) all.words[all.words.length - 1] = 2 ** (size % 32) - 1;
    return all;
  }

  add(place: number): void {
    this.words[place >>> 5]! |= 1 << (place & 31);
  }

  has(place: number): boolean {
    return ((this.words[place >>> 5] ?? 0) & (1 << (place & 31))) !== 0;
  }

  copy(): Bits {
    const same = new Bits(this.size);
    same.words.set(this.words);
    return same;
  }

  /** Keeps what the other has, too; with `not`, what it has not. */
  keep(other: Bits, not = false): this {
    const flip = not ? 0xffffffff : 0;
    for (let i = 0; i < this.words.length; i++) this.words[i]! &= other.words[i]! ^ flip;
    return this;
  }

  /** Takes in what the other has. */
  join(other: Bits): this {
    for (let i = 0; i < this.words.length; i++) this.words[i]! |= other.words[i]!;
    return this;
  }

  count(): number {
    let found = 0;
    for (let i = 0; i < this.words.length; i++) found += ones(this.words[i]!);
    return found;
  }

  /** How many places both have. */
  common(other: Bits): number {
    let found = 0;
    for (let i = 0; i < this.words.length; i++) found += ones(this.words[i]! & other.words[i]!);
    return found;
  }

  places(): Int32Array {
    const found = new Int32Array(this.count());
    let next = 0;
    for (let i = 0; i < this.words.length; i++) {
      for (let word = this.words[i]!; word; word &= word - 1) {
        found[next++] = i * 32 + 31 - Math.clz32(word & -word);
      }
    }
    return found;
  }
}

function ones(word: number): number {
  word -= (word >>> 1) & 0x55555555;
  word = (word & 0x33333333) + ((word >>> 2) & 0x33333333);
  return (((word + (word >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
}
