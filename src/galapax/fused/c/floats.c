FN T ipow_S(T x, int y) { T r = 1; while (y) { if (y & 1) r *= x; x *= x; y >>= 1; } return r; }
