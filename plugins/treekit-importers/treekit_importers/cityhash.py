"""CityHash, version 1.0 (Pike and Alakuijala 2011), by which CatBoost stores categories."""

from __future__ import annotations

__all__ = ["city_hash_64"]

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_K3 = 0xC949D7C7509E6557
_PAIR_FACTOR = 0x9DDFEA08EB382D69


def city_hash_64(text: bytes) -> int:
    """Return the hash of some bytes, an integer of 64 bits."""
    size = len(text)
    if size <= 16:
        return _hash_short(text)
    if size <= 32:
        a, b = _read(text, 0) * _K1, _read(text, 8)
        c, d = _read(text, size - 8) * _K2, _read(text, size - 16) * _K0
        return _hash_pair(
            _rotate(a - b, 43) + _rotate(c, 30) + d, a + _rotate(b ^ _K3, 20) - c + size
        )
    return _hash_medium(text) if size <= 64 else _hash_long(text)


def _read(text: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(text[at : at + size], "little")


def _rotate(value: int, bits: int) -> int:
    """Rotate the 64 lower bits to the right."""
    value &= _MASK
    return value >> bits | value << (64 - bits) & _MASK


def _mix(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _hash_pair(low: int, high: int) -> int:
    first = _mix((low ^ high) * _PAIR_FACTOR)
    return _mix((high & _MASK ^ first) * _PAIR_FACTOR) * _PAIR_FACTOR & _MASK


def _hash_short(text: bytes) -> int:
    """Hash up to 16 bytes."""
    size = len(text)
    if size > 8:
        last = _read(text, size - 8)
        return _hash_pair(_read(text, 0), _rotate(last + size, size)) ^ last
    if size >= 4:
        return _hash_pair(size + (_read(text, 0, 4) << 3), _read(text, size - 4, 4))
    if not size:
        return _K2
    y, z = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
    return _mix(y * _K2 ^ z * _K3) * _K2 & _MASK


def _hash_medium(text: bytes) -> int:
    """Hash 33 to 64 bytes: the halves overlap in the middle."""
    size = len(text)
    start = (_read(text, 0) + (size + _read(text, size - 16)) * _K0, _read(text, 24))
    first, second = _add_words(*start, _read(text, 8), _read(text, 16))
    start = (_read(text, 16) + _read(text, size - 32), _read(text, size - 8))
    third, fourth = _add_words(*start, _read(text, size - 24), _read(text, size - 16))
    return _mix(_mix((first + fourth) * _K2 + (third + second) * _K0) * _K0 + second) * _K2 & _MASK


def _add_words(a: int, z: int, x: int, y: int) -> tuple[int, int]:
    b, c = _rotate(a + z, 52), _rotate(a, 37)
    a += x
    c += _rotate(a, 7)
    a += y
    return a + z, b + _rotate(a, 31) + c


def _hash_long(text: bytes) -> int:
    """Hash more than 64 bytes: the last 64, then all blocks of 64."""
    size = len(text)
    x, y = _read(text, 0), _read(text, size - 16) ^ _K1
    z = _read(text, size - 56) ^ _K0
    v = _hash_block(text, size - 64, size, y)
    w = _hash_block(text, size - 32, size * _K1, _K0)
    z += _mix(v[1]) * _K1
    x = _rotate(z + x, 39) * _K1
    y = _rotate(y, 33) * _K1
    for at in range(0, (size - 1) // 64 * 64, 64):
        x = _rotate(x + y + v[0] + _read(text, at + 16), 37) * _K1
        y = _rotate(y + v[1] + _read(text, at + 48), 42) * _K1
        x, y = (x ^ w[1]) & _MASK, (y ^ v[0]) & _MASK
        z = _rotate(z ^ w[0], 33)
        v = _hash_block(text, at, v[1] * _K1, x + w[0])
        w = _hash_block(text, at + 32, z + w[1], y)
        z, x = x, z
    return _hash_pair(
        _hash_pair(v[0], w[0]) + _mix(y) * _K1 + z & _MASK, _hash_pair(v[1], w[1]) + x & _MASK
    )


def _hash_block(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Hash 32 bytes with two seeds."""
    w, x, y, z = (_read(text, at + k) for k in range(0, 32, 8))
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    b += _rotate(a, 44)
    return a + z & _MASK, b + c & _MASK
