"""Gymnasium's MuJoCo tasks stepped by compiled loops that call MuJoCo's C library, bit for bit like Gymnasium."""
