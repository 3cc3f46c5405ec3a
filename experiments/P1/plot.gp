# Draws the figures of P1 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid
