FN T add_S(T a, T b) { return (T)((U)a + (U)b); }
FN T mul_S(T a, T b) { return (T)((U)a * (U)b); }
FN T max_S(T a, T b) { return a > b ? a : b; }
FN T min_S(T a, T b) { return a < b ? a : b; }
FN T and_S(T a, T b) { return a & b; }
FN T or_S(T a, T b) { return a | b; }
FN T xor_S(T a, T b) { return a ^ b; }
FN T rem_S(T a, T b) { return b == 0 ? a : SIGNED && b == (T)-1 ? 0 : a % b; }
FN T div_S(T a, T b) { return b == 0 ? (T)-1 : SIGNED && b == (T)-1 ? (T)(0 - (U)a) : a / b; }
FN T ipow_S(T x, int y) { T r = 1; while (y) { if (y & 1) r = mul_S(r, x); x = mul_S(x, x); y >>= 1; } return r; }
FN T to_S(double x) { return x != x ? 0 : x <= LOW ? (T)LOWEST : x >= HIGH ? (T)HIGHEST : (T)x; }
